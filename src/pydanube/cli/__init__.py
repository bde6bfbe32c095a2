"""The `danube` command: run a broker, publish, consume, look at a configuration.

The top floor: may import server and client, inside the commands that need them, so that `danube --help`
stays quick. Start reading at `main.py`.
"""
