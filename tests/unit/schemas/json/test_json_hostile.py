"""Definitions made to take forever: refused, or harmless."""

import json
from typing import Any

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.schemas.json_schema import parse_json_schema


def parsed(schema: Any) -> Any:
    return parse_json_schema(json.dumps(schema).encode(), {})


def doubling(keyword: str, steps: int) -> dict[str, Any]:
    defs: dict[str, Any] = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(steps)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**defs, f"d{steps}": {"type": "integer"}}}


def twice_below(*ways: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [*ways, {"type": "string"}]}


TOO_MUCH: dict[str, Any] = {
    "allOf doubles": doubling("allOf", 40),
    "anyOf doubles": doubling("anyOf", 40),
    "oneOf doubles": doubling("oneOf", 40),
    "itself": {"$ref": "#"},
    "itself by a detour": {"allOf": [{"not": {"anyOf": [{"$ref": "#"}]}}]},
    "twice by property": twice_below(
        {"properties": {"a": {"$ref": "#"}}}, {"properties": {"a": {"$ref": "#"}}}
    ),
    "twice by pattern": twice_below({"patternProperties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}}),
    "twice by items": twice_below({"items": {"$ref": "#"}, "contains": {"$ref": "#"}}),
    "twice by rest": twice_below(
        {"additionalProperties": {"$ref": "#"}}, {"properties": {"a": {"$ref": "#"}}}
    ),
    "a long chain": {
        "$ref": "#/$defs/d0",
        "$defs": {**{f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3000)}, "d3000": {}},
    },
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_what_multiplies_is_refused(case: str) -> None:
    with pytest.raises(Rejected, match=r"look at one place|itself without looking deeper|follow each other"):
        parsed(TOO_MUCH[case])


HARMLESS: dict[str, Any] = {
    "two subtrees": {
        "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}},
        "additionalProperties": False,
    },
    "operators": {
        "anyOf": [
            {"properties": {name: {"items": {"$ref": "#"}}}, "required": [name]}
            for name in ("and", "or", "xor")
        ]
    },
    "a thousand values": {"oneOf": [{"const": i} for i in range(1000)]},
    "doubled ten times": doubling("allOf", 8),
    "many properties": {"properties": {f"p{i}": {"type": "string"} for i in range(3000)}},
    "many definitions": {
        "$defs": {f"d{i}": {"properties": {"a": {"$ref": f"#/$defs/d{(i * 7) % 900}"}}} for i in range(900)},
        "$ref": "#/$defs/d0",
    },
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_does_not_multiply_is_not(case: str) -> None:
    schema = parsed(HARMLESS[case])
    assert parsed({**HARMLESS[case], "title": "t"}).problems_reading(schema) == []


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "^(a|aa)*$", "(.*)*b", "^(([a-z])+.)+[A-Z]([a-z])+$", "(a?){200}a{200}"]
)
def test_patterns_take_linear_time(pattern: str) -> None:
    # An engine that goes back and forth would not come back before the test's time is up.
    reason = parsed({"pattern": pattern}).check_payload(json.dumps("a" * 50_000 + "!").encode())
    assert reason is None or "does not match" in reason


def test_a_payload_too_large_for_a_costly_schema_is_refused_unread() -> None:
    schema = parsed({"items": {"anyOf": [{"const": i} for i in range(1500)]}})
    assert schema.check_payload(b"[" + b"1," * 1000 + b"1]") is None
    assert "is checked up to" in str(schema.check_payload(b"[" + b"1," * 50_000 + b"1]"))


def test_a_payload_with_a_thousand_errors_gets_one_reason() -> None:
    branches = [{"type": "object", "properties": {f"p{i}": {}}, "required": ["missing"]} for i in range(300)]
    reason = parsed({"items": {"anyOf": branches}}).check_payload(b"[" + b"{}," * 10_000 + b"{}]")
    assert str(reason).startswith("'[0]': the value is not valid under any")


def entangled(bound: int) -> dict[str, Any]:
    """Branches of branches whose comparison has no end in sight."""

    def level(depth: int, mark: int) -> dict[str, Any]:
        if depth == 0:
            return {"type": "integer", "minimum": bound + mark}
        return {
            "anyOf": [{"type": "object", "properties": {"x": level(depth - 1, mark + i)}} for i in range(5)]
        }

    return level(4, 0)


def test_comparisons_end() -> None:
    problems = parsed(entangled(1)).problems_reading(parsed(entangled(0)))
    assert problems


def test_comparing_with_long_lists_ends() -> None:
    def tags(count: int) -> dict[str, Any]:
        branches = [
            {"type": "object", "properties": {"t": {"const": i}}, "required": ["t"]} for i in range(count)
        ]
        return {"oneOf": branches}

    assert parsed(tags(41)).problems_reading(parsed(tags(40))) == []
    assert parsed(tags(300)).problems_reading(parsed(tags(299))) != []
