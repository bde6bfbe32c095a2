"""Arbitrary and bent definitions, references and payloads: a schema or `Rejected`, a verdict or a reason,
never another exception, and always an end.

    pytest tests/fuzz/test_fuzz_schemas.py                     about four seconds
    FUZZ_SECONDS=600 pytest tests/fuzz/test_fuzz_schemas.py    as long as asked

A failure prints the seed that replays it: FUZZ_SEED=… runs that one case of each test.
"""

import json
import os
import random
import time
from collections.abc import Callable
from typing import Any

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.format import ParsedSchema, SchemaKind, parse_schema

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
SEED = os.environ.get("FUZZ_SEED")
pytestmark = pytest.mark.timeout(2 * SECONDS + 60)

AVRO: list[Any] = [
    {
        "type": "record",
        "name": "a.Order",
        "fields": [
            {"name": "id", "type": "long", "default": 1},
            {"name": "note", "type": ["null", "string"], "default": None},
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"], "default": "A"}},
            {"name": "items", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
            {
                "name": "price",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
            {"name": "key", "type": {"type": "fixed", "name": "Key", "size": 2}, "aliases": ["k"]},
            {"name": "next", "type": ["null", "a.Order", "a.Other"]},
        ],
    },
    ["null", "int", {"type": "array", "items": "string"}],
]
JSON_SCHEMAS: list[Any] = [
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": "http://example.org/order",
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0, "multipleOf": 2},
            "tags": {
                "type": "array",
                "prefixItems": [{"const": 1}],
                "items": {"$ref": "#/$defs/tag"},
                "maxItems": 3,
            },
            "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
            "other": {"$ref": "a.Other#/definitions/x"},
        },
        "patternProperties": {"^x-": {"pattern": "^(a|b)+$"}},
        "required": ["id"],
        "additionalProperties": False,
        "if": {"required": ["tags"]},
        "then": {"dependentSchemas": {"tags": {"minProperties": 2}}},
        "$defs": {"tag": {"$anchor": "tag", "type": ["string", "null"], "enum": ["a", None], "maxLength": 9}},
    },
    {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "definitions": {"x": {"id": "#x", "minimum": 1, "exclusiveMinimum": True}},
        "oneOf": [{"$ref": "#x"}, {"type": "string", "not": {"maxLength": 3}}],
        "dependencies": {"a": ["b"], "b": {"required": ["c"]}},
    },
]
OTHER = {
    SchemaKind.AVRO: {
        "type": "record",
        "name": "a.Other",
        "fields": [{"name": "back", "type": ["null", "a.Other"]}],
    },
    SchemaKind.JSON_SCHEMA: {"definitions": {"x": {"items": {"$ref": "#"}}}},
}
SEEDS = {SchemaKind.AVRO: AVRO, SchemaKind.JSON_SCHEMA: JSON_SCHEMAS}
SCRAPS = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    2**70,
    "",
    "int",
    "#",
    "#/",
    "a.Other",
    "$ref",
    "\ud800",
    [],
    {},
    [[]],
    {"": {}},
]


def many(case: Callable[[random.Random], bool]) -> int:
    """Run a case with one seed after another for half the time given; how many got somewhere."""
    if SEED:
        case(random.Random(int(SEED)))
        return 1
    seed = random.SystemRandom().randrange(2**40)
    started = time.monotonic()
    useful = 0
    while time.monotonic() - started < SECONDS / 2:
        try:
            useful += case(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"replay with FUZZ_SEED={seed}") from error
        seed += 1
    return useful


def bent(dice: random.Random, value: Any, depth: int = 0) -> Any:
    """The value with some parts replaced, moved, repeated or left out."""
    way = dice.random()
    if depth and way < 0.03:
        return dice.choice(SCRAPS)
    if isinstance(value, dict):
        pairs = [(key, bent(dice, part, depth + 1)) for key, part in value.items() if dice.random() > 0.02]
        if pairs and way < 0.1:
            pairs.append((dice.choice(pairs)[0], dice.choice(pairs)[1]))
        return dict(pairs)
    if isinstance(value, list):
        parts = [bent(dice, part, depth + 1) for part in value if dice.random() > 0.02]
        return parts + parts[:1] if way < 0.1 else parts
    return value


def torn(dice: random.Random, text: bytes) -> bytes:
    """The bytes with a few changed, cut or repeated."""
    data = bytearray(text)
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(data) + 1)
        match dice.randrange(3):
            case 0:
                data[at : at + 1] = dice.randbytes(1)
            case 1:
                del data[at : at + dice.randrange(9)]
            case _:
                data[at:at] = data[at : at + dice.randrange(9)]
    return bytes(data)


def some_schema(dice: random.Random, kind: SchemaKind) -> ParsedSchema | None:
    references = {"a.Other": json.dumps(bent(dice, OTHER[kind])).encode()}
    definition = json.dumps(bent(dice, dice.choice(SEEDS[kind]))).encode()
    if dice.random() < 0.2:
        definition = torn(dice, definition)
    try:
        return parse_schema(kind, definition, references=references)
    except Rejected as error:
        if error.code is not ErrorCode.SCHEMA_INVALID:
            raise
        return None


KINDS = pytest.mark.parametrize("kind", SEEDS, ids=lambda kind: kind.value)


@KINDS
def test_any_definition_is_understood_or_refused(kind: SchemaKind) -> None:
    def case(dice: random.Random) -> bool:
        one, other = some_schema(dice, kind), some_schema(dice, kind)
        if one is None or other is None:
            return False
        for problem in one.problems_reading(other):
            assert problem.rule
            assert problem.text
        assert one.problems_reading(one) == []
        return True

    assert many(case) > 0


@KINDS
def test_any_payload_gets_a_verdict(kind: SchemaKind) -> None:
    honest = [
        b'{"id":2,"tags":[1,"a"],"next":null,"x-a":"ab"}',
        b'{"id":',
        b"\x02\x00\x02\x00\x00\x00kk\x00",
        b"Obj\x01\x02\x16avro.schema",
    ]

    def case(dice: random.Random) -> bool:
        schema = some_schema(dice, kind)
        if schema is None:
            return False
        for _ in range(20):
            payload = (
                dice.randbytes(dice.randrange(30)) if dice.random() < 0.3 else torn(dice, dice.choice(honest))
            )
            verdict = schema.check_payload(payload)
            assert verdict is None or verdict
        return True

    assert many(case) > 0


@KINDS
def test_bytes_that_are_no_text_are_refused(kind: SchemaKind) -> None:
    def case(dice: random.Random) -> bool:
        text = (
            dice.randbytes(dice.randrange(40))
            if dice.random() < 0.5
            else bytes(dice.choices(b'{}[]":,0 e', k=20))
        )
        try:
            parse_schema(kind, text, references={dice.choice(["", "x", "#", "a.b"]): text})
        except Rejected as error:
            return error.code is ErrorCode.SCHEMA_INVALID
        return False

    assert many(case) > 0
