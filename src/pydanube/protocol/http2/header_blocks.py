"""Header blocks: put together from their frames, decoded, checked, and remembered by their bytes.

Clients send the same header block again and again, so a block is looked up before it is decoded. That is
sound as long as the decoder's table is what it was: a block that changes the table is never remembered,
and it empties the memory.
"""

from typing import Final

from pydanube.protocol.http2.frames import (
    ENHANCE_YOUR_CALM,
    PROTOCOL_ERROR,
    GoAwayError,
    StreamResetError,
)
from pydanube.protocol.http2.headers import (
    Headers,
    MalformedHeadersError,
    RequestHeaderReader,
    check_trailers,
)
from pydanube.protocol.http2.hpack import HpackDecoder
from pydanube.protocol.http2.limits import Http2Limits


class HeaderBlocks:
    """Turns header blocks into headers; `known` is what it remembers."""

    def __init__(self, limits: Http2Limits) -> None:
        self.known: dict[bytes, Headers] = {}
        self._known_bytes = 0
        self._known_bytes_max = limits.cached_block_bytes_max
        self._hpack = HpackDecoder(
            list_bytes_max=limits.header_list_bytes_max, fields_max=limits.header_fields_max
        )
        self._reader = RequestHeaderReader()

    def read_request(self, stream_id: int, block: bytes) -> Headers:
        """Decode a block that is not known."""
        fields = self._decode(block)
        try:
            headers = self._reader.read(fields)
        except MalformedHeadersError:
            raise StreamResetError(stream_id, PROTOCOL_ERROR) from None
        if not self._hpack.table_changed:
            self._known_bytes += len(block)
            if self._known_bytes > self._known_bytes_max:
                self.known = {}
                self._known_bytes = len(block)
            self.known[block] = headers
        return headers

    def read_trailers(self, stream_id: int, block: bytes) -> None:
        """Decode trailers; nobody here needs them, but they must be well-formed."""
        try:
            check_trailers(self._decode(block))
        except MalformedHeadersError:
            raise StreamResetError(stream_id, PROTOCOL_ERROR) from None

    def skip(self, block: bytes) -> None:
        """Decode a block of a stream that is gone: it still belongs to the decoder's state."""
        self._decode(block)

    def _decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        fields = self._hpack.decode(block)
        if self._hpack.table_changed:
            self.known = {}
            self._known_bytes = 0
        return fields


class PartialBlock:
    """A header block spread over HEADERS and CONTINUATION frames, as far as it has come."""

    def __init__(self, stream_id: int, flags: int, fragment: bytes, started_at: float) -> None:
        self.stream_id: Final = stream_id
        self.flags: Final = flags
        self.started_at: Final = started_at
        self._bytes = bytearray(fragment)
        self._frames = 0

    def add(self, fragment: bytes, limits: Http2Limits) -> None:
        """Append a CONTINUATION frame's fragment; raise GoAwayError past the limits."""
        self._frames += 1
        self._bytes += fragment
        if self._frames > limits.continuation_frames_max:
            raise GoAwayError(
                ENHANCE_YOUR_CALM, f"more than {limits.continuation_frames_max} CONTINUATION frames"
            )
        if len(self._bytes) > limits.header_block_bytes_max:
            raise GoAwayError(
                ENHANCE_YOUR_CALM, f"a header block of more than {limits.header_block_bytes_max} bytes"
            )

    def whole(self) -> bytes:
        return bytes(self._bytes)
