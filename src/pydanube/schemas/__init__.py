"""Schemas: what a payload may look like, and which change of it keeps old or new readers working.

Every definition and every payload is hostile input here: nothing is fetched or opened, size, depth and work
are bounded, and the answer to bad input is `Rejected` or a reason, never another exception.

May import kernel and metadata. Start reading at `format.py` (what every format promises), then
`compatibility.py` (the modes), then one format: `avro_schema.py`, `json_schema.py` or `protobuf_schema.py`.
"""
