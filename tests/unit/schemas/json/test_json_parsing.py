"""What is a JSON Schema, what is not, and which payloads fit one."""

import json
import socket
from typing import Any

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.json_schema import JsonSchema, parse_json_schema


def parsed(schema: Any, **references: Any) -> JsonSchema:
    texts = {f"{name}.json": json.dumps(text).encode() for name, text in references.items()}
    return parse_json_schema(json.dumps(schema).encode(), texts)


BAD: list[tuple[Any, str]] = [
    (1, "at '/'"),
    ({"type": "letters"}, "at '/type'"),
    ({"properties": {"a": {"minimum": "x"}}}, "at '/properties/a/minimum'"),
    ({"$schema": "http://example.org/own"}, "use draft 4, 6, 7, 2019-09 or 2020-12"),
    ({"$ref": "#/nowhere"}, "points at nothing"),
    ({"$ref": "#nowhere"}, "an anchor that does not exist"),
    ({"$ref": "#/enum", "enum": [1]}, "neither an object nor a boolean"),
    ({"$ref": "#/x", "x": {"properties": 5}}, "no schema"),
    ({"pattern": "("}, "regex"),
    ({"pattern": "(?=a)b"}, "look-around"),
    ({"pattern": r"(a)\1"}, "look-around"),
    ({"pattern": "((a{1000}){1000}){1000}"}, "regex"),
    ({"properties": {"a": {"$id": "http://example.org/a", "type": "string"}}}, "identifier of its own"),
    (
        {"$defs": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}, "$ref": "#/$defs/a"},
        "another draft",
    ),
]


@pytest.mark.parametrize(("schema", "reason"), BAD, ids=[str(schema) for schema, _ in BAD])
def test_bad_schemas_are_refused_with_the_reason(schema: Any, reason: str) -> None:
    with pytest.raises(Rejected, match=reason) as refused:
        parsed(schema)
    assert refused.value.code is ErrorCode.SCHEMA_INVALID


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_each_draft_is_known_by_its_address(draft: str, scheme: str) -> None:
    schema = parsed({"$schema": f"{scheme}://json-schema.org/{draft}/schema#", "type": "integer"})
    assert schema.check_payload(b"1") is None
    assert (schema.check_payload(b"1.0") is None) == (draft != "draft-04")


def listening() -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))
    server.setblocking(False)
    return server


def test_nothing_is_fetched_or_opened(tmp_path: Any) -> None:
    secret = tmp_path / "schema.json"
    secret.write_text("{}")
    with listening() as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"
        for target in (
            address,
            secret.as_uri(),
            str(secret),
            "other.json",
            "//127.0.0.1/x",
            "urn:danube:definition",
        ):
            for schema in (
                {"$ref": target},
                {"properties": {"a": {"$ref": target + "#/x"}}},
                {"$id": "http://example.org/", "items": {"$ref": target}},
            ):
                with pytest.raises(Rejected, match="nothing is fetched"):
                    parsed(schema)
            with pytest.raises(Rejected):
                parsed({"$dynamicRef": target})
            with pytest.raises(Rejected):
                parsed({"$schema": target})
        # Where no subschema stands, nothing is a reference.
        parsed(
            {
                "const": {"$ref": address},
                "properties": {"$ref": {"type": "string"}},
                "x-note": {"$ref": address},
            }
        )
        with pytest.raises(BlockingIOError):
            server.accept()


def test_references_in_parts_that_nothing_uses_are_found_too() -> None:
    day = {"$defs": {"day": {"type": "string"}, "other": {"$ref": "third.json"}}}
    part = {"properties": {"f": {"$ref": "days.json#/$defs/day"}}}
    schema = parsed({"type": "object", "$defs": {"s": part}}, days=day, third={"type": "integer"})
    assert schema.check_payload(b"{}") is None


def test_references_are_found_by_name_and_see_their_own_parts() -> None:
    money = {"definitions": {"cents": {"$ref": "#/definitions/whole"}, "whole": {"type": "integer"}}}
    order = {
        "$id": "http://example.org/order.json",
        "properties": {
            "total": {"$ref": "money.json#/definitions/cents"},
            "parent": {"$ref": "http://example.org/order.json"},
            "other": {"$ref": "#/properties/total"},
        },
    }
    schema = parsed(order, money=money)
    assert schema.check_payload(b'{"total":1,"other":2,"parent":{"total":3}}') is None
    for payload in (b'{"total":"x"}', b'{"other":"x"}', b'{"parent":{"total":"x"}}'):
        assert schema.check_payload(payload) is not None
    assert schema.fingerprint != parsed(order, money={**money, "title": "x"}).fingerprint


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#whole", "$defs": {"x": {"$anchor": "whole", "type": "integer"}}},
        {"$dynamicRef": "#whole", "$defs": {"x": {"$dynamicAnchor": "whole", "type": "integer"}}},
        {"$ref": "#/$defs/a%25b~1c~0d", "$defs": {"a%b/c~d": {"type": "integer"}}},
        {"$ref": "#/components/schemas/x", "components": {"schemas": {"x": {"type": "integer"}}}},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$ref": "#whole",
            "definitions": {"x": {"$id": "#whole", "type": "integer"}},
        },
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "$ref": "#whole",
            "type": "string",
            "definitions": {"x": {"id": "#whole", "type": "integer"}},
        },
        {
            "$schema": "https://json-schema.org/draft/2019-09/schema",
            "anyOf": [{"type": "integer"}, {"type": "array", "items": {"$recursiveRef": "#"}}],
        },
    ],
    ids=str,
)
def test_all_ways_to_refer_inside_a_document_are_understood(schema: Any) -> None:
    understood = parsed(schema)
    assert understood.check_payload(b"1") is None
    assert understood.check_payload(b'"x"') is not None
    assert parsed({**schema, "title": "x"}).problems_reading(understood) == []


def test_the_fingerprint_does_not_see_whitespace_or_order_of_keys() -> None:
    one = parse_json_schema(b'{"type":"object","title":"t"}', {})
    other = parse_json_schema(b'{ "title" : "t",\n"type":"object"}', {})
    assert one.fingerprint == other.fingerprint
    assert one.fingerprint.startswith("sha256:")
    assert parsed({"type": "object"}).fingerprint != one.fingerprint


ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "items": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b'{"id":1,"items":["a"]}', None),
        (b' {"id": 123456789012345678901234567890} ', None),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"id":1}x', "not JSON"),
        (b'{"id":NaN}', "not JSON"),
        (b"\xff", "not JSON"),
        (b"{}", '"id" is a required property'),
        (b'{"id":1,"items":[1]}', "'items[0]': the value is not of type"),
        (b"[" * 100_000, "too deeply"),
        (b'{"id":' + b"[" * 900 + b"]" * 900 + b"}", "cannot be checked"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_payloads(payload: bytes, reason: str | None) -> None:
    found = parsed(ORDER).check_payload(payload)
    assert found is None if reason is None else reason in str(found)


def test_a_reason_does_not_repeat_the_payload() -> None:
    reason = parsed({"properties": {"pin": {"maxLength": 4}}}).check_payload(b'{"pin":"secret"}')
    assert reason == "'pin': the value is longer than 4 characters"


def test_formats_are_not_checked() -> None:
    assert (
        parsed({"format": "ipv4", "$schema": "http://json-schema.org/draft-07/schema#"}).check_payload(b'"x"')
        is None
    )
