"""A request's header fields, checked once (RFC 9113, section 8) and then shared by every equal request."""

from typing import Final

_TOKEN: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_CONNECTION_SPECIFIC: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)
_PSEUDO: Final = frozenset((b":method", b":scheme", b":path", b":authority"))


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


def read_request_headers(fields: list[tuple[bytes, bytes]]) -> Headers:
    """Check and index the fields of a request; raise MalformedHeadersError."""
    pseudo: dict[bytes, bytes] = {}
    regular: dict[str, str] = {}
    content_length = -1
    for name, value in fields:
        if name[:1] == b":":
            if regular or name not in _PSEUDO or name in pseudo:
                raise MalformedHeadersError(f"pseudo-header field {name!r} is unknown, repeated or late")
            _check_value(value)
            pseudo[name] = value
            continue
        _check_field(name, value)
        if name == b"content-length":
            length = _content_length(value)
            if content_length not in (-1, length):
                raise MalformedHeadersError("two different content-length fields")
            content_length = length
        text = name.decode("latin-1")
        known = regular.get(text)
        regular[text] = value.decode("latin-1") if known is None else f"{known},{value.decode('latin-1')}"
    method = pseudo.get(b":method", b"")
    path = pseudo.get(b":path", b"")
    if not method or not path or not pseudo.get(b":scheme"):
        raise MalformedHeadersError("a request needs :method, :scheme and :path")
    return Headers(method.decode("latin-1"), path.decode("latin-1"), regular, content_length)


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
    if b"\x00" in value or b"\r" in value or b"\n" in value:
        raise MalformedHeadersError("a field value holds NUL, CR or LF")
    if value[:1] in (b" ", b"\t") or value[-1:] in (b" ", b"\t"):
        raise MalformedHeadersError("a field value begins or ends with white space")


def _content_length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise MalformedHeadersError("content-length is not a number")
    return int(value)
