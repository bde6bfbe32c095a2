"""The native protocol without I/O: frames, their bodies, batches. Shared by broker and client.

docs/protocol.md is the contract. Start reading at `frames.py`; `batch.py` is the layout of a batch, `arrow.py` all that
needs Arrow.
"""
