"""JSON documents as rows: checked as their own version says, then put into the columns of the table.

A property is known by its name alone, so a renamed one is another column.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.json_schema import JsonSchema
from pydanube.spark.decoding.json_columns import Shape, lay_out
from pydanube.spark.decoding.payloads import VALUE_COLUMN, BadPayload, DecodeRow, Row, misfit


class JsonTable:
    def __init__(self, schema: JsonSchema, references: Mapping[str, bytes]) -> None:
        self._fingerprint = schema.fingerprint
        self._shape = lay_out(schema.text.encode(), references, schema.root)
        fields = self._shape.fields
        self.columns = (
            pa.schema([(each.name, each.shape.type) for each in fields])
            if fields
            else pa.schema([(VALUE_COLUMN, self._shape.type)])
        )

    def decoder(self, written: ParsedSchema, *, is_exact: bool = False) -> DecodeRow:
        # What the table's own version accepted has the types of the columns; nothing is known of other versions.
        is_exact |= written.fingerprint != self._fingerprint
        make = _record(self._shape, is_exact) if self._shape.fields else _value(self._shape)
        check = written.check_payload
        read = msgspec.json.decode

        def decode(payload: bytes) -> Row:
            problem = check(payload)
            if problem is not None:
                raise BadPayload(problem)
            try:
                return make(read(payload))
            except RecursionError:
                raise BadPayload("the document is nested too deeply") from None

        return decode


def _record(shape: Shape, is_exact: bool) -> Callable[[Any], Row]:
    plan = [
        (each.key, None if each.shape.is_direct and not is_exact else each.shape.convert)
        for each in shape.fields
    ]

    def make(document: Any) -> Row:
        if not isinstance(document, dict):
            raise misfit(shape.type)
        row: list[object] = []
        key = ""
        try:
            for key, convert in plan:
                value = document.get(key)
                row.append(value if value is None or convert is None else convert(value))
        except BadPayload as bad:
            bad.where.append(f".{key}")
            raise
        return row

    return make


def _value(shape: Shape) -> Callable[[Any], Row]:
    return lambda document: (None if document is None else shape.convert(document),)
