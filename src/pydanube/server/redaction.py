"""What must never be read in a log line or a printed configuration."""

import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "***"

_SECRET_NAME = re.compile(
    r"token|secret|passw|authori[sz]ation|credential|cookie|api_?key|(^|[_-])(access|account|private)?_?key$",
    re.IGNORECASE,
)
_NOT_SECRET: Final = frozenset({"routing_key", "metadata_key"})
_SECRET_TEXT = re.compile(
    r"(?i:(?P<scheme>bearer|basic)\s+)[\w.~+/=-]+"  # an authorization header
    r"|eyJ[\w-]{5,}\.[\w-]+\.[\w-]*"  # a JSON web token
    r"|(?<=://)[^\s/@:]+:[^\s/@]+(?=@)"  # user and password of a URL
)
_DEPTH_MAX: Final = 8


def redact(name: str, value: object, *, depth: int = 0) -> object:
    """The value as it may be shown under this name."""
    if is_secret_name(name) and value is not None:
        return MASK
    if isinstance(value, str):
        return redact_text(value)
    if depth >= _DEPTH_MAX:
        return "…"
    if isinstance(value, Mapping):
        return {key: redact(str(key), below, depth=depth + 1) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [redact("", below, depth=depth + 1) for below in value]
    return value


def redact_text(text: str) -> str:
    """Free text without tokens and passwords of the well-known shapes."""
    return _SECRET_TEXT.sub(lambda found: f"{found['scheme']} {MASK}" if found["scheme"] else MASK, text)


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and name not in _NOT_SECRET
