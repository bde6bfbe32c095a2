"""HPACK (RFC 7541): a decoder with explicit bounds, and literals for the few headers a server writes."""

from typing import Final

from pydanube.protocol.http2.frames import COMPRESSION_ERROR, ENHANCE_YOUR_CALM, GoAwayError
from pydanube.protocol.http2.huffman import HuffmanError, decode_huffman

TABLE_BYTES: Final = 4096
FIELD_OVERHEAD_BYTES: Final = 32

# No index, length or table size a peer can mean needs more; larger integers are an attack.
_INTEGER_MAX: Final = 1 << 28

# Appendix A; the empty first entry makes list index and wire index the same.
STATIC_TABLE: Final[list[tuple[bytes, bytes]]] = [
    (b"", b""),
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    (b":status", b"200"),
    (b":status", b"204"),
    (b":status", b"206"),
    (b":status", b"304"),
    (b":status", b"400"),
    (b":status", b"404"),
    (b":status", b"500"),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    (b"accept-language", b""),
    (b"accept-ranges", b""),
    (b"accept", b""),
    (b"access-control-allow-origin", b""),
    (b"age", b""),
    (b"allow", b""),
    (b"authorization", b""),
    (b"cache-control", b""),
    (b"content-disposition", b""),
    (b"content-encoding", b""),
    (b"content-language", b""),
    (b"content-length", b""),
    (b"content-location", b""),
    (b"content-range", b""),
    (b"content-type", b""),
    (b"cookie", b""),
    (b"date", b""),
    (b"etag", b""),
    (b"expect", b""),
    (b"expires", b""),
    (b"from", b""),
    (b"host", b""),
    (b"if-match", b""),
    (b"if-modified-since", b""),
    (b"if-none-match", b""),
    (b"if-range", b""),
    (b"if-unmodified-since", b""),
    (b"last-modified", b""),
    (b"link", b""),
    (b"location", b""),
    (b"max-forwards", b""),
    (b"proxy-authenticate", b""),
    (b"proxy-authorization", b""),
    (b"range", b""),
    (b"referer", b""),
    (b"refresh", b""),
    (b"retry-after", b""),
    (b"server", b""),
    (b"set-cookie", b""),
    (b"strict-transport-security", b""),
    (b"transfer-encoding", b""),
    (b"user-agent", b""),
    (b"vary", b""),
    (b"via", b""),
    (b"www-authenticate", b""),
]
_DYNAMIC_START: Final = 62


class HpackDecoder:
    """Header blocks in, header fields out; keeps the dynamic table of one connection.

    `table_changed` says whether the last block changed the table: such a block means something else when
    it comes again, so its result must not be cached.
    """

    def __init__(self, *, list_bytes_max: int, fields_max: int) -> None:
        self._list_bytes_max = list_bytes_max
        self._fields_max = fields_max
        self._dynamic: list[tuple[bytes, bytes]] = []  # newest first
        self._dynamic_bytes = 0
        self._dynamic_bytes_max = TABLE_BYTES
        self.table_changed = False

    def decode(self, block: bytes) -> list[tuple[bytes, bytes]]:
        """Return the fields of a whole header block; raise GoAwayError, after which the table is void."""
        self.table_changed = False
        fields: list[tuple[bytes, bytes]] = []
        list_bytes = 0
        pos = 0
        end = len(block)
        while pos < end:
            first = block[pos]
            if first & 0x80:
                if first == 0xFF:
                    index, pos = self._integer(block, pos, 0x7F)
                else:
                    index = first & 0x7F
                    pos += 1
                field = self._entry(index)
            elif first & 0xE0 == 0x20:
                if fields:
                    raise _broken("a table size update after the first field")
                size, pos = self._integer(block, pos, 0x1F)
                self._resize(size)
                continue
            else:
                # 01 adds to the table; 0000 and 0001 (never indexed) do not.
                adds = first & 0x40 != 0
                index, pos = self._integer(block, pos, 0x3F if adds else 0x0F)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, pos = self._string(block, pos)
                value, pos = self._string(block, pos)
                field = (name, value)
                if adds:
                    self._add(field)
            list_bytes += len(field[0]) + len(field[1]) + FIELD_OVERHEAD_BYTES
            if list_bytes > self._list_bytes_max:
                raise GoAwayError(
                    ENHANCE_YOUR_CALM, f"the header list is larger than {self._list_bytes_max} bytes"
                )
            fields.append(field)
            if len(fields) > self._fields_max:
                raise GoAwayError(ENHANCE_YOUR_CALM, f"more than {self._fields_max} header fields")
        return fields

    def _integer(self, block: bytes, pos: int, mask: int) -> tuple[int, int]:
        """A prefixed integer (section 5.1) and the position behind it."""
        value = block[pos] & mask
        pos += 1
        if value < mask:
            return value, pos
        shift = 0
        end = len(block)
        while pos < end:
            octet = block[pos]
            pos += 1
            value += (octet & 0x7F) << shift
            if value > _INTEGER_MAX or shift > 28:
                raise _broken("an integer out of all bounds")
            if not octet & 0x80:
                return value, pos
            shift += 7
        raise _broken("the block ends inside an integer")

    def _string(self, block: bytes, pos: int) -> tuple[bytes, int]:
        """A string literal (section 5.2) and the position behind it."""
        if pos >= len(block):
            raise _broken("the block ends before a string")
        packed = block[pos] & 0x80
        length, pos = self._integer(block, pos, 0x7F)
        stop = pos + length
        if stop > len(block):
            raise _broken("the block ends inside a string")
        text = block[pos:stop]
        if packed:
            try:
                text = decode_huffman(text)
            except HuffmanError:
                raise _broken("a string is not valid Huffman code") from None
        return text, stop

    def _entry(self, index: int) -> tuple[bytes, bytes]:
        if index < _DYNAMIC_START:
            if index == 0:
                raise _broken("index 0 means nothing")
            return STATIC_TABLE[index]
        index -= _DYNAMIC_START
        if index >= len(self._dynamic):
            raise _broken("an index beyond the table")
        return self._dynamic[index]

    def _add(self, field: tuple[bytes, bytes]) -> None:
        self.table_changed = True
        self._dynamic_bytes += len(field[0]) + len(field[1]) + FIELD_OVERHEAD_BYTES
        self._dynamic.insert(0, field)
        self._evict()

    def _resize(self, size: int) -> None:
        if size > TABLE_BYTES:
            raise _broken("a table size above the one advertised")
        self.table_changed = True
        self._dynamic_bytes_max = size
        self._evict()

    def _evict(self) -> None:
        while self._dynamic_bytes > self._dynamic_bytes_max:
            name, value = self._dynamic.pop()
            self._dynamic_bytes -= len(name) + len(value) + FIELD_OVERHEAD_BYTES


def encode_fields(fields: list[tuple[bytes, bytes]]) -> bytes:
    """A header block of plain literals that leaves the peer's table alone, so it can be built once."""
    return b"".join([b"\x00" + _literal(name) + _literal(value) for name, value in fields])


def _literal(text: bytes) -> bytes:
    length = len(text)
    if length < 0x7F:
        return bytes([length]) + text
    length -= 0x7F
    prefix = [0x7F]
    while length >= 0x80:
        prefix.append(length & 0x7F | 0x80)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + text


def _broken(text: str) -> GoAwayError:
    return GoAwayError(COMPRESSION_ERROR, f"header block: {text}")
