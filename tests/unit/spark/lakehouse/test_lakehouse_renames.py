"""Fields that got another name."""

import json

from pydanube.schemas.format import SchemaKind
from pydanube.spark.decoding import LoadedSchemas
from pydanube.spark.decoding.schema_sources import Definition
from pydanube.spark.lakehouse.renames import renamed_columns


def proto(*fields: str) -> Definition:
    body = " ".join(fields)
    return Definition(SchemaKind.PROTOBUF, f'syntax = "proto3"; message M {{ {body} }}'.encode())


def test_protobuf_fields_are_known_by_number_through_all_versions() -> None:
    first = proto("int32 a = 1;", "string offset = 2;", "string kept = 3;")
    second = proto("int32 b = 1;", "string offset = 2;", "string kept = 3;")
    third = proto("int32 c = 1;", "string place = 2;", "string kept = 3;", "string a = 4;")
    schemas = LoadedSchemas(third, 1, "s", {1: first, 2: second, 3: third})
    # A field called as a column of messages has an underscore behind its name.
    assert renamed_columns(schemas) == {"a": "c", "b": "c", "offset_": "place"}


def test_avro_fields_list_their_old_names() -> None:
    fields = [{"name": "total", "type": "long", "aliases": ["amount", "sum"]}, {"name": "x", "type": "int"}]
    record = {"type": "record", "name": "R", "fields": fields}
    table = Definition(SchemaKind.AVRO, json.dumps(record).encode())
    assert renamed_columns(LoadedSchemas(table)) == {"amount": "total", "sum": "total"}
    assert renamed_columns(LoadedSchemas(Definition(SchemaKind.AVRO, b'"int"'))) == {}
    assert renamed_columns(LoadedSchemas(Definition(SchemaKind.JSON_SCHEMA, b"{}"))) == {}
