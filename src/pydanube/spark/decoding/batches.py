"""Batches of payloads as batches of rows, on an executor."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import pyarrow as pa

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.avro_schema import AvroSchema
from pydanube.schemas.json_schema import JsonSchema
from pydanube.schemas.protobuf_schema import ProtobufSchema
from pydanube.spark.decoding.avro_rows import AvroTable
from pydanube.spark.decoding.json_rows import JsonTable
from pydanube.spark.decoding.payloads import BadPayload, DecodeRow, Row, TableFormat, misfit
from pydanube.spark.decoding.plain_rows import PlainTable
from pydanube.spark.decoding.protobuf_rows import ProtobufTable
from pydanube.spark.decoding.schema_sources import Definition, LoadedSchemas, definition_of

DECODERS_MAX: Final = 256
"""Versions remembered by one task; those used longest ago are made again."""

REASON_CHARACTERS_MAX: Final = 500

_Named: TypeAlias = tuple[int | None, int | None]
"""Schema id and version, as a message names them."""

ROW: Final = "row"
ERROR: Final = "error"


def table_format(definition: Definition) -> TableFormat:
    """The columns a schema makes, and what fills them; Rejected if it cannot be understood."""
    schema = definition.parsed()
    match schema:
        case JsonSchema():
            return JsonTable(schema, definition.references)
        case AvroSchema():
            return AvroTable(schema)
        case ProtobufSchema():
            return ProtobufTable(schema)
        case _:
            return PlainTable(schema.kind)


class BatchDecoder:
    """Decodes for one task: each payload by the version it names, into the columns of the table."""

    def __init__(self, schemas: LoadedSchemas) -> None:
        self._schemas = schemas
        self._format = table_format(schemas.table)
        self._decoders: dict[tuple[_Named, bool], DecodeRow] = {}
        self._fields = list(self._format.columns)
        self._nothing: Row = (None,) * len(self._fields)

    def decode(self, ids: pa.Array, versions: pa.Array, payloads: pa.Array) -> pa.StructArray:
        """A struct of `row`, null where the payload makes none, and `error`, null where it does."""
        named = list(zip(ids.to_pylist(), versions.to_pylist(), strict=True))
        messages = payloads.to_pylist()
        with _no_collection():
            rows, errors = self._rows(named, messages, is_exact=False)
            try:
                columns = self._columns(rows)
            except _UNFIT:
                # Rare: a value the schema allows and the column cannot hold.
                rows, errors = self._exact_rows(named, messages)
                columns = self._columns(rows)
        bad_rows = pa.array([error is not None for error in errors], pa.bool_())
        row = pa.StructArray.from_arrays(columns, fields=self._fields, mask=bad_rows)
        return pa.StructArray.from_arrays([row, pa.array(errors, pa.string())], names=[ROW, ERROR])

    def _rows(
        self, named: list[_Named], messages: list[bytes], *, is_exact: bool
    ) -> tuple[list[Row], list[str | None]]:
        rows: list[Row] = []
        errors: list[str | None] = []
        last: _Named | None = None
        decode = _refuse_all("")
        for now, payload in zip(named, messages, strict=True):
            if now != last:
                last, decode = now, self._decoder(now, is_exact)
            try:
                rows.append(decode(payload))
                errors.append(None)
            except BadPayload as bad:
                rows.append(self._nothing)
                errors.append(bad.explained()[:REASON_CHARACTERS_MAX])
        return rows, errors

    def _exact_rows(self, named: list[_Named], messages: list[bytes]) -> tuple[list[Row], list[str | None]]:
        """The same with each value looked at, and then each row tried alone."""
        rows, errors = self._rows(named, messages, is_exact=True)
        for index, row in enumerate(rows):
            unfit = self._unfit(row)
            if unfit is not None:
                rows[index], errors[index] = self._nothing, unfit
        return rows, errors

    def _columns(self, rows: list[Row]) -> list[pa.Array]:
        values: list[Sequence[object]] = list(zip(*rows, strict=True)) if rows else [()] * len(self._fields)
        return [pa.array(column, type=field.type) for column, field in zip(values, self._fields, strict=True)]

    def _unfit(self, row: Row) -> str | None:
        for value, field in zip(row, self._fields, strict=True):
            try:
                pa.array([value], type=field.type)
            except _UNFIT:
                bad = misfit(field.type)
                bad.where.append(field.name)
                return bad.explained()
        return None

    def _decoder(self, named: _Named, is_exact: bool) -> DecodeRow:
        key = (named, is_exact)
        decoder = self._decoders.pop(key, None) or self._make_decoder(*named, is_exact=is_exact)
        if len(self._decoders) >= DECODERS_MAX:
            self._decoders.pop(next(iter(self._decoders)))
        self._decoders[key] = decoder
        return decoder

    def _make_decoder(self, schema_id: int | None, version: int | None, *, is_exact: bool) -> DecodeRow:
        schemas = self._schemas
        if schemas.schema_id is None or (not schema_id and schemas.unnamed_rows == "decode"):
            return self._format.decoder(schemas.table.parsed(), is_exact=is_exact)
        if not schema_id:
            return _refuse_all("the message names no schema")
        if schema_id != schemas.schema_id:
            return _refuse_all(
                f"schema {schema_id} is not of subject {schemas.subject!r}, whose id is {schemas.schema_id}"
            )
        definition = self._definition(version or 1)
        if definition is None:
            return _refuse_all(f"subject {schemas.subject!r} has no version {version or 1}")
        if definition.kind is not schemas.table.kind:
            return _refuse_all(
                f"version {version or 1} of subject {schemas.subject!r} is {definition.kind.value}, "
                f"the table is {schemas.table.kind.value}"
            )
        return self._format.decoder(definition.parsed(), is_exact=is_exact)

    def _definition(self, version: int) -> Definition | None:
        """Of a version of the subject; asks the registry for one that was registered after the query was made."""
        known = self._schemas.versions.get(version)
        if known is not None or self._schemas.connection is None or self._schemas.schema_id is None:
            return known
        with self._schemas.connection.client() as client:
            try:
                return definition_of(client, client.schemas.get(self._schemas.schema_id, version))
            except Rejected as error:
                if error.code is ErrorCode.SCHEMA_UNKNOWN:
                    return None
                raise


@contextmanager
def _no_collection() -> Iterator[None]:
    """A batch is ten thousands of values without circles: looking for circles among them costs a seventh of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _refuse_all(reason: str) -> DecodeRow:
    def refuse(payload: bytes) -> Row:
        raise BadPayload(reason)

    return refuse


_UNFIT: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeError, ValueError, TypeError)
