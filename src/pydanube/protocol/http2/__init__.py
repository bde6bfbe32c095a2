"""The server side of HTTP/2 (RFC 9113, RFC 7541) without I/O.

Start reading at `connection.py`; `limits.py` lists every bound, `outbox.py` is the sending half.
"""

from pydanube.protocol.http2.connection import Cancelled, Event, Http2Connection
from pydanube.protocol.http2.headers import Headers
from pydanube.protocol.http2.limits import Http2Limits

__all__ = ["Cancelled", "Event", "Headers", "Http2Connection", "Http2Limits"]
