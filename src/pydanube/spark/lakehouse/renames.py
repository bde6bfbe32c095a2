"""Fields that got another name: in Protobuf the number stays, in Avro the new field lists the old name as an alias."""

import json
from collections.abc import Mapping

from google.protobuf.descriptor import Descriptor

from pydanube.schemas.format import SchemaKind
from pydanube.schemas.protobuf_schema import ProtobufSchema
from pydanube.spark.decoding import LoadedSchemas
from pydanube.spark.decoding.payloads import column_names
from pydanube.spark.decoding.schema_sources import Definition
from pydanube.spark.lakehouse.envelope import column_of


def renamed_columns(schemas: LoadedSchemas) -> dict[str, str]:
    """New names by old ones, of the columns at the top of the table."""
    renamed = _by_alias(schemas.table) if schemas.table.kind is SchemaKind.AVRO else _by_number(schemas)
    return {_column(old): _column(new) for old, new in renamed.items()}


def _column(field: str) -> str:
    (name,) = column_names([field], at_top=True)
    return column_of(name)


def _by_alias(table: Definition) -> dict[str, str]:
    schema = json.loads(table.text)
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return {}
    return {alias: field["name"] for field in schema["fields"] for alias in field.get("aliases", ())}


def _by_number(schemas: LoadedSchemas) -> dict[str, str]:
    now = _names(schemas.table)
    renamed: dict[str, str] = {}
    for definition in schemas.versions.values():
        for number, name in _names(definition).items():
            if now.get(number, name) != name:
                renamed[name] = now[number]
    return renamed


def _names(definition: Definition) -> Mapping[int, str]:
    if definition.kind is not SchemaKind.PROTOBUF:
        return {}
    parsed = definition.parsed()
    assert isinstance(parsed, ProtobufSchema)
    message: Descriptor = parsed.message
    return {field.number: field.name for field in message.fields}
