"""Defaults of Avro fields as values: the library hands out what stands in the schema, where bytes are text and times are
numbers.
"""

import io
from typing import Any, Final

_OF_JSON: Final[dict[type, frozenset[str]]] = {
    type(None): frozenset({"null"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"int", "long", "float", "double"}),
    float: frozenset({"float", "double"}),
    str: frozenset({"string", "bytes", "fixed", "enum"}),
    list: frozenset({"array"}),
    dict: frozenset({"map", "record", "error"}),
}


def type_defaults(avro: Any, named: dict[str, Any]) -> None:
    """Replace the defaults of all records among parsed types by the values that reading them would give."""
    fields = [
        field for declared in named.values() for field in declared.get("fields", ()) if "default" in field
    ]
    # All bytes first: a default may leave out fields that have defaults themselves.
    for field in fields:
        field["default"] = _with_bytes(field["default"], field["type"], named)
    for field in fields:
        field["default"] = _read_back(avro, field, named)


def _with_bytes(value: Any, kind: Any, named: dict[str, Any]) -> Any:
    if isinstance(kind, list):
        kind = next((branch for branch in kind if _may_be(value, branch, named)), "null")
    declared = named.get(kind, kind) if isinstance(kind, str) else kind
    match _name(declared):
        case "bytes" | "fixed":
            return value.encode("latin-1")
        case "array":
            return [_with_bytes(each, declared["items"], named) for each in value]
        case "map":
            return {key: _with_bytes(each, declared["values"], named) for key, each in value.items()}
        case "record" | "error":
            types = {field["name"]: field["type"] for field in declared["fields"]}
            return {key: _with_bytes(each, types[key], named) for key, each in value.items() if key in types}
        case _:
            return value


def _may_be(value: Any, kind: Any, named: dict[str, Any]) -> bool:
    declared = named.get(kind, kind) if isinstance(kind, str) else kind
    name = _name(declared)
    return name in _OF_JSON[type(value)] and (name != "enum" or value in declared["symbols"])


def _name(declared: Any) -> str:
    name: str = declared["type"] if isinstance(declared, dict) else declared
    return name


def _read_back(avro: Any, field: dict[str, Any], named: dict[str, Any]) -> Any:
    around = {
        "type": "record",
        "name": "pydanube.Default",
        "fields": [{"name": "value", "type": field["type"]}],
        "__fastavro_parsed": True,
        "__named_schemas": named,
    }
    data = io.BytesIO()
    avro.schemaless_writer(data, around, {"value": field["default"]})
    data.seek(0)
    return avro.schemaless_reader(data, around, None)["value"]
