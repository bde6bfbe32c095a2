"""JSON documents as rows: checked as their own version says, then put into the columns of the table.

A property is known by its name alone, so a renamed one is another column.
"""

from collections.abc import Mapping

import msgspec
import pyarrow as pa

from pydanube.schemas.format import ParsedSchema
from pydanube.schemas.json_schema import JsonSchema
from pydanube.spark.decoding.json_columns import lay_out
from pydanube.spark.decoding.payloads import VALUE_COLUMN, BadPayload, DecodeRow, Row, misfit


class JsonTable:
    def __init__(self, schema: JsonSchema, references: Mapping[str, bytes]) -> None:
        self._shape = lay_out(schema.text.encode(), references, schema.root)
        fields = self._shape.fields
        self.columns = (
            pa.schema([(each.name, each.type) for each in fields])
            if fields
            else pa.schema([(VALUE_COLUMN, self._shape.type)])
        )

    def decoder(self, written: ParsedSchema) -> DecodeRow:
        check = written.check_payload
        read = msgspec.json.decode
        make = self._record if self._shape.fields else self._value

        def decode(payload: bytes) -> Row:
            problem = check(payload)
            if problem is not None:
                raise BadPayload(problem)
            try:
                return make(read(payload))
            except RecursionError:
                raise BadPayload("the document is nested too deeply") from None

        return decode

    def _record(self, document: object) -> Row:
        if not isinstance(document, dict):
            raise misfit(self._shape.type)
        row: list[object] = []
        key = ""
        try:
            for field in self._shape.fields:
                key = field.key
                value = document.get(key)
                row.append(None if value is None else field.convert(value))
        except BadPayload as bad:
            bad.where.append(f".{key}")
            raise
        return row

    def _value(self, document: object) -> Row:
        return (None if document is None else self._shape.convert(document),)
