"""A request's header fields, checked once (RFC 9113, section 8) and then shared by every equal request."""

import re
from typing import Final

_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_CONNECTION_SPECIFIC: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_BAD_VALUE: Final = re.compile(rb"[\x00\r\n]|\A[ \t]|[ \t]\Z")

_REMEMBERED_FIELDS_MAX: Final = 256
_REMEMBERED_BYTES_MAX: Final = 256


class Headers:
    """Immutable request headers. Names are lower case; a repeated field's values are joined by a comma."""

    def __init__(self, method: str, path: str, fields: dict[str, str], content_length: int) -> None:
        self.method: Final = method
        self.path: Final = path
        self.content_type: Final = fields.get("content-type", "")
        self.content_length: Final = content_length  # as announced, or -1
        self._fields: Final = fields

    def get(self, name: str) -> str | None:
        """The value of a field by its lower-case name, or None."""
        return self._fields.get(name)

    def items(self) -> list[tuple[str, str]]:
        return list(self._fields.items())

    def __repr__(self) -> str:
        # Values may be credentials; names are enough to understand a log line.
        return f"Headers({self.method} {self.path} {sorted(self._fields)})"


class MalformedHeadersError(Exception):
    """A request is malformed (section 8.1.1): its stream ends with PROTOCOL_ERROR."""


class RequestHeaderReader:
    """Checks and indexes the fields of requests; remembers the fields it has found to be good.

    Most fields of a connection's requests are the same each time, even where one of them (a deadline, a
    trace id) makes every header block different.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, bytes], tuple[str, str]] = {}

    def read(self, fields: list[tuple[bytes, bytes]]) -> Headers:
        """Return the headers; raise MalformedHeadersError."""
        method = path = scheme = authority = b""
        regular: dict[str, str] = {}
        for field in fields:
            known = self._known.get(field)
            if known is None:
                name, value = field
                if name[:1] == b":":
                    # An empty or a second one, an unknown one, or one after the regular fields is an error.
                    _check_value(value)
                    if not regular and value:
                        if name == b":path" and not path:
                            path = value
                            continue
                        if name == b":method" and not method:
                            method = value
                            continue
                        if name == b":scheme" and not scheme:
                            scheme = value
                            continue
                        if name == b":authority" and not authority:
                            authority = value
                            continue
                    raise MalformedHeadersError(
                        f"pseudo-header field {name!r} is unknown, empty, repeated or late"
                    )
                known = self._learn(field)
            text, content = known
            if text in regular:
                content = f"{regular[text]},{content}"
            regular[text] = content
        if not method or not path or not scheme:
            raise MalformedHeadersError("a request needs :method, :scheme and :path")
        length = regular.get("content-length")
        return Headers(
            method.decode("latin-1"),
            path.decode("latin-1"),
            regular,
            -1 if length is None else _content_length(length),
        )

    def _learn(self, field: tuple[bytes, bytes]) -> tuple[str, str]:
        name, value = field
        _check_field(name, value)
        known = (name.decode("latin-1"), value.decode("latin-1"))
        if len(value) <= _REMEMBERED_BYTES_MAX:
            if len(self._known) >= _REMEMBERED_FIELDS_MAX:
                self._known = {}
            self._known[field] = known
        return known


def check_trailers(fields: list[tuple[bytes, bytes]]) -> None:
    """Trailers hold regular fields only; raise MalformedHeadersError."""
    for name, value in fields:
        _check_field(name, value)


def _check_field(name: bytes, value: bytes) -> None:
    if not name or name.translate(None, _TOKEN):
        raise MalformedHeadersError(f"field name {name!r} is not a lower-case token")
    if name in _CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
        raise MalformedHeadersError(f"connection-specific field {name!r}")
    _check_value(value)


def _check_value(value: bytes) -> None:
    if _BAD_VALUE.search(value) is not None:
        raise MalformedHeadersError("a field value holds NUL, CR or LF, or begins or ends with white space")


def _content_length(value: str) -> int:
    # A repeated field arrives here joined by a comma; the same length twice is still one length.
    lengths = set(value.split(","))
    length = lengths.pop()
    if lengths or not (length.isascii() and length.isdigit()) or len(length) > 18:
        raise MalformedHeadersError("content-length is not one number")
    return int(length)
