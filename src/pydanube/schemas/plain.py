"""Payloads without structure: bytes, text, one number. The definition of such a schema is ignored."""

from pydanube.schemas.format import Incompatibility, ParsedSchema, SchemaKind, other_kind
from pydanube.schemas.limits import check_sizes

NUMBER_SIZES = (4, 8)


class PlainSchema:
    """One of bytes, string and number; every version of such a schema is the same schema."""

    __slots__ = ("fingerprint", "kind", "text")

    quick_bytes_max = 4 * 1024 * 1024

    def __init__(self, kind: SchemaKind, definition: bytes) -> None:
        check_sizes(definition, {})
        self.kind = kind
        self.text = definition.decode(errors="replace")
        self.fingerprint = kind.value

    def problems_reading(self, written: ParsedSchema) -> list[Incompatibility]:
        return [] if written.kind is self.kind else other_kind(self, written)

    def check_payload(self, payload: bytes) -> str | None:
        if self.kind is SchemaKind.STRING:
            try:
                payload.decode()
            except UnicodeDecodeError as error:
                return f"not UTF-8 at byte {error.start}"
        elif self.kind is SchemaKind.NUMBER and len(payload) not in NUMBER_SIZES:
            return f"{len(payload)} bytes: a number has 4 or 8"
        return None
