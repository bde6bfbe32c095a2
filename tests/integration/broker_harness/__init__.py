"""What the integration tests drive: a whole broker in this process, and a plain gRPC client for it.

Start reading at `running_broker.py`; `wire_client.py` speaks to it.
"""
