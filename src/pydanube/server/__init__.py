"""The composition root: configuration in, real clock, disk and sockets, a running broker out.

The only room that knows every other one. Start reading at `main.py`.
"""
