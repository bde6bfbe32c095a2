"""Schemas without a definition: text, numbers and bytes, one column each."""

from typing import Final

import pyarrow as pa

from pydanube.schemas.format import ParsedSchema, SchemaKind
from pydanube.spark.decoding.payloads import VALUE_COLUMN, BadPayload, DecodeRow, Row

_TYPES: Final = {
    SchemaKind.STRING: pa.string(),
    SchemaKind.NUMBER: pa.int64(),
    SchemaKind.BYTES: pa.binary(),
}


class PlainTable:
    def __init__(self, kind: SchemaKind) -> None:
        self.columns = pa.schema([(VALUE_COLUMN, _TYPES[kind])])

    def decoder(self, written: ParsedSchema, *, is_exact: bool = False) -> DecodeRow:
        return _DECODERS[written.kind]


def _text(payload: bytes) -> Row:
    try:
        return (payload.decode(),)
    except UnicodeDecodeError as error:
        raise BadPayload(f"not UTF-8 at byte {error.start}") from None


def _number(payload: bytes) -> Row:
    """Big-endian, as the client's codec has it."""
    if len(payload) not in (4, 8):
        raise BadPayload(f"a number has 4 or 8 bytes, not {len(payload)}")
    return (int.from_bytes(payload, "big", signed=True),)


def _bytes(payload: bytes) -> Row:
    return (payload,)


_DECODERS: Final[dict[SchemaKind, DecodeRow]] = {
    SchemaKind.STRING: _text,
    SchemaKind.NUMBER: _number,
    SchemaKind.BYTES: _bytes,
}
