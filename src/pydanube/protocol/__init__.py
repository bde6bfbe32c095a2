"""What goes over the wire, as pure functions and state machines: bytes in, events and bytes out.

May import kernel only; no clock, no socket, no event loop. `http2/` and `grpc.py` are the server side of
gRPC, `danube_pb2` holds the generated messages. Start reading at `grpc.py`.
"""
