"""The head of an HTTP/1 request, read strictly: what two readers could understand differently is refused."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from pydanube.kernel.errors import ErrorCode, Rejected

FIELDS_MAX: Final = 100

_REQUEST_LINE: Final = re.compile(r"([A-Z]{1,20}) (/[!-~]*) HTTP/1\.[01]")
_FIELD: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*?)[ \t]*")


class HttpRequest(NamedTuple):
    method: str
    path: str
    """Without what follows a question mark."""
    fields: Mapping[str, str]
    """Names in lower case. A field given twice has its values joined by a comma."""


def parse_head(head: bytes) -> HttpRequest:
    """Read everything up to and including the empty line; Rejected if it is no request."""
    first, *lines = head.removesuffix(b"\r\n\r\n").decode("latin-1").split("\r\n")
    request_line = _REQUEST_LINE.fullmatch(first)
    if request_line is None:
        raise _malformed("the first line is not METHOD /path HTTP/1.1")
    if len(lines) > FIELDS_MAX:
        raise _malformed(f"it has {len(lines)} header fields, {FIELDS_MAX} at most")
    fields: dict[str, str] = {}
    for number, line in enumerate(lines, start=2):
        field = _FIELD.fullmatch(line)
        if field is None:
            raise _malformed(f"line {number} is not a header field, name: value")
        name, value = field[1].lower(), field[2]
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    return HttpRequest(request_line[1], request_line[2].partition("?")[0], fields)


def _malformed(why: str) -> Rejected:
    return Rejected(f"this is no HTTP request: {why}", ErrorCode.MALFORMED_REQUEST)
