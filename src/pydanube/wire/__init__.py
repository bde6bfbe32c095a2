"""The front doors: they translate a protocol into calls of the broker, and its answers back.

May import `broker` and what lies below; nothing below knows of them. Start reading at `listener.py` (how a
connection finds its protocol), then `grpc_connection.py`, then `routes.py` and one service.
"""
