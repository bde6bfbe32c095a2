"""Which JSON Schemas accept all that others accept, and what is said if not."""

import json
from typing import Any

import pytest

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.json_schema import parse_json_schema

DRAFT4 = "http://json-schema.org/draft-04/schema#"
DRAFT7 = "http://json-schema.org/draft-07/schema#"


def problems(reader: Any, writer: Any, **references: Any) -> list[Incompatibility]:
    texts = {f"{name}.json": json.dumps(text).encode() for name, text in references.items()}
    new = parse_json_schema(json.dumps(reader).encode(), texts)
    return new.problems_reading(parse_json_schema(json.dumps(writer).encode(), texts))


def rules(reader: Any, writer: Any, **references: Any) -> list[tuple[str, str]]:
    return [(problem.path, problem.rule) for problem in problems(reader, writer, **references)]


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def closed(**properties: Any) -> dict[str, Any]:
    return {**thing(**properties), "additionalProperties": False}


def stated(**properties: Any) -> dict[str, Any]:
    return {**thing(**properties), "additionalProperties": True}


INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
TEXT = {"type": "string"}

CONTAINED: dict[str, tuple[Any, Any]] = {
    "anything": ({}, INTEGER),
    "true": (True, INTEGER),
    "nothing is written": (INTEGER, False),
    "integer is number": (NUMBER, INTEGER),
    "one more type": ({"type": ["string", "null"]}, TEXT),
    "a type for each branch": ({"anyOf": [TEXT, {"type": "null"}]}, {"type": ["null", "string"]}),
    "one more value": ({"enum": ["a", "b"]}, {"enum": ["a"]}),
    "const becomes enum": ({"enum": [1, 2]}, {"const": 1}),
    "enum becomes type": (TEXT, {"enum": ["a", "b"]}),
    "booleans are two values": ({"enum": [True, False, None]}, {"type": "boolean"}),
    "wider range": ({"minimum": 0, "maximum": 9}, {"type": "integer", "minimum": 1, "maximum": 8}),
    "whole numbers beyond 4 are 5": ({"minimum": 5}, {"type": "integer", "exclusiveMinimum": 4}),
    "exclusive is narrower": ({"minimum": 5}, {"type": "number", "exclusiveMinimum": 5}),
    "multiples": ({"multipleOf": 3}, {"type": "integer", "multipleOf": 6}),
    "integers are multiples of one": ({"multipleOf": 1}, INTEGER),
    "longer text": ({"maxLength": 9}, {"type": "string", "maxLength": 8}),
    "same pattern": ({"pattern": "^a"}, {"type": "string", "pattern": "^a", "maxLength": 3}),
    "formats are annotations": ({"type": "string", "format": "email"}, TEXT),
    "open property dropped": (thing(a=INTEGER), thing(a=INTEGER, b=TEXT)),
    "property added to closed": (closed(a=INTEGER, b=TEXT), closed(a=INTEGER)),
    "closing what is silent": (closed(a=INTEGER), thing(a=INTEGER)),
    "closed is opened": (thing(a=INTEGER), closed(a=INTEGER)),
    "no longer required": (thing(a=INTEGER), {**thing(a=INTEGER), "required": ["a"]}),
    "nested": (closed(a=closed(b=NUMBER)), closed(a=closed(b=INTEGER))),
    "further properties": (
        {"additionalProperties": NUMBER},
        {"type": "object", "properties": {"a": INTEGER}, "additionalProperties": INTEGER},
    ),
    "same pattern of names": (
        {"patternProperties": {"^x-": NUMBER}, "additionalProperties": False, "properties": {"a": {}}},
        {**closed(a=TEXT), "patternProperties": {"^x-": INTEGER}},
    ),
    "names that match": ({"patternProperties": {"^x-": INTEGER}}, closed(**{"x-a": INTEGER})),
    "impossible property": (closed(), {**closed(a=False)}),
    "fewer properties than allowed": ({"maxProperties": 2}, closed(a=INTEGER, b=INTEGER)),
    "required count": ({"minProperties": 1}, {**thing(), "required": ["a"]}),
    "names in bounds": ({"propertyNames": {"maxLength": 2}}, closed(ab=TEXT)),
    "dependency granted": ({"dependentRequired": {"a": ["b"]}}, {"type": "object", "required": ["b"]}),
    "dependency cannot arise": ({"dependentRequired": {"a": ["b"]}}, closed(c=TEXT)),
    "items": ({"items": NUMBER}, {"type": "array", "items": INTEGER}),
    "tuple": (
        {"prefixItems": [NUMBER], "items": TEXT},
        {"type": "array", "prefixItems": [INTEGER, TEXT], "items": False},
    ),
    "tuple into items": (
        {"items": NUMBER},
        {"type": "array", "prefixItems": [INTEGER, INTEGER], "items": INTEGER},
    ),
    "length from the tuple": ({"maxItems": 2}, {"type": "array", "prefixItems": [{}, {}], "items": False}),
    "a single item is unique": ({"uniqueItems": True}, {"type": "array", "maxItems": 1}),
    "all items contained": ({"contains": NUMBER}, {"type": "array", "items": INTEGER, "minItems": 1}),
    "allOf": ({"allOf": [{"minimum": 1}, {"maximum": 5}]}, {"type": "integer", "minimum": 2, "maximum": 3}),
    "allOf of the writer": (
        {"minimum": 1, "maximum": 5},
        {"allOf": [INTEGER, {"minimum": 2}, {"maximum": 3}]},
    ),
    "anyOf of the writer": (NUMBER, {"anyOf": [INTEGER, {"enum": [1.5]}]}),
    "two disjunctions of the writer": (
        {"anyOf": [{"type": "string", "minLength": 1, "maxLength": 3}, {"type": "integer", "minimum": 0}]},
        {
            "allOf": [
                {"anyOf": [{"type": "string", "maxLength": 3}, INTEGER]},
                {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer", "minimum": 0}]},
            ]
        },
    ),
    "one more branch": ({"oneOf": [TEXT, INTEGER, {"type": "null"}]}, {"oneOf": [TEXT, INTEGER]}),
    "one more tag": (
        {"oneOf": [{**thing(kind={"const": tag}), "required": ["kind"]} for tag in ("a", "b", "c")]},
        {"oneOf": [{**thing(kind={"const": tag}), "required": ["kind"]} for tag in ("a", "b")]},
    ),
    "not by type": ({"not": TEXT}, INTEGER),
    "if then": ({"if": TEXT, "then": {"maxLength": 5}}, {"type": ["string", "null"], "maxLength": 5}),
    "if cannot hold": ({"if": TEXT, "then": {"maxLength": 5}}, INTEGER),
    "if always holds": ({"if": NUMBER, "else": {"maxLength": 5}}, INTEGER),
    "unevaluated is closed": (
        {"allOf": [thing(a=INTEGER)], "properties": {"b": TEXT}, "unevaluatedProperties": False},
        closed(a=INTEGER, b=TEXT),
    ),
    "reference": (
        {"$ref": "#/$defs/n", "$defs": {"n": NUMBER}},
        {"$ref": "#/definitions/i", "definitions": {"i": INTEGER}},
    ),
    "anchor": ({"$ref": "#n", "$defs": {"x": {"$anchor": "n", **NUMBER}}}, INTEGER),
    "another draft": (
        {"type": "integer", "exclusiveMaximum": 5},
        {"$schema": DRAFT4, "type": "integer", "maximum": 5, "exclusiveMaximum": True},
    ),
    "tuple of another draft": (
        {"prefixItems": [INTEGER], "items": TEXT},
        {"$schema": DRAFT7, "type": "array", "items": [INTEGER], "additionalItems": TEXT},
    ),
}


@pytest.mark.parametrize("case", CONTAINED)
def test_what_accepts_all_is_compatible(case: str) -> None:
    assert rules(*CONTAINED[case]) == []


NOT_CONTAINED: dict[str, tuple[Any, Any, list[tuple[str, str]]]] = {
    "a type less": (TEXT, {"type": ["string", "null"]}, [("", "type_narrowed")]),
    "number to integer": (INTEGER, NUMBER, [("", "type_narrowed")]),
    "nothing": (False, INTEGER, [("", "nothing_accepted")]),
    "a value less": ({"enum": ["a"]}, {"enum": ["a", "b"]}, [("", "value_refused")]),
    "values of a type": ({"enum": ["a"]}, TEXT, [("", "enum_narrowed")]),
    "minimum": ({"minimum": 2}, {"type": "integer", "minimum": 1}, [("", "range_narrowed")]),
    "exclusive": ({"exclusiveMinimum": 5}, {"type": "number", "minimum": 5}, [("", "range_narrowed")]),
    "maxLength": ({"maxLength": 2}, {"type": "string", "maxLength": 3}, [("", "range_narrowed")]),
    "multipleOf": ({"multipleOf": 4}, {"type": "integer", "multipleOf": 6}, [("", "range_narrowed")]),
    "pattern": ({"pattern": "^a"}, {"type": "string", "pattern": "^ab"}, [("", "pattern_changed")]),
    "required": ({**thing(), "required": ["a"]}, thing(a=TEXT), [("a", "property_required")]),
    "described": (stated(a=TEXT, b=TEXT), stated(a=TEXT), [("b", "property_added_to_open")]),
    "closing": (closed(a=TEXT), stated(a=TEXT), [("*", "properties_closed")]),
    "removed": (closed(), closed(a=TEXT), [("a", "property_removed")]),
    "removed and closed patterns": (
        closed(),
        {**closed(), "patternProperties": {"^x-": TEXT}},
        [("*", "properties_closed")],
    ),
    "further": (
        {"additionalProperties": INTEGER},
        {"type": "object", "additionalProperties": NUMBER},
        [("*", "type_narrowed")],
    ),
    "deep": (
        closed(order=closed(items={"type": "array", "items": closed(price=INTEGER)})),
        closed(order=closed(items={"type": "array", "items": closed(price=NUMBER)})),
        [("order.items[].price", "type_narrowed")],
    ),
    "tuple": (
        {"prefixItems": [INTEGER, TEXT]},
        {"type": "array", "prefixItems": [INTEGER, INTEGER]},
        [("[1]", "type_narrowed")],
    ),
    "closed items": ({"items": False}, {"type": "array", "maxItems": 1}, [("[]", "items_closed")]),
    "unique": ({"uniqueItems": True}, {"type": "array"}, [("", "unique_items")]),
    "contains": ({"contains": TEXT}, {"type": "array", "items": TEXT}, [("[]", "contains_changed")]),
    "maxContains": (
        {"contains": TEXT, "minContains": 0, "maxContains": 0},
        {"type": "array", "items": TEXT},
        [("[]", "contains_changed")],
    ),
    "names": ({"propertyNames": {"maxLength": 1}}, closed(ab=TEXT), [("ab", "property_name")]),
    "dependency": ({"dependentRequired": {"a": ["b"]}}, thing(a=TEXT), [("a", "property_required")]),
    "dependent schema": (
        {"dependentSchemas": {"a": {"required": ["b"]}}},
        thing(),
        [("b", "property_required")],
    ),
    "branch": (
        {"anyOf": [TEXT, {"type": "null"}]},
        {"type": ["null", "string", "integer"]},
        [("", "no_branch")],
    ),
    "overlap": ({"oneOf": [INTEGER, NUMBER]}, NUMBER, [("", "cannot_be_shown")]),
    "two branches may fit": ({"oneOf": [NUMBER, {"minimum": 3}]}, NUMBER, [("", "cannot_be_shown")]),
    "not": ({"not": {"minimum": 5}}, INTEGER, [("", "cannot_be_shown")]),
    "then": ({"if": TEXT, "then": {"maxLength": 5}}, {"type": ["string", "null"]}, [("", "range_narrowed")]),
    "unevaluated": (
        {"allOf": [thing(a=INTEGER)], "unevaluatedProperties": False},
        stated(a=INTEGER),
        [("*", "properties_closed")],
    ),
    "draft 4 integers": ({"$schema": DRAFT4, "type": "integer"}, INTEGER, [("", "type_narrowed")]),
    "1.0 is no integer of draft 4": (
        {"$schema": DRAFT4, "type": "integer"},
        {"enum": [1]},
        [("", "value_refused")],
    ),
}


@pytest.mark.parametrize("case", NOT_CONTAINED)
def test_what_may_refuse_something_is_incompatible(case: str) -> None:
    reader, writer, expected = NOT_CONTAINED[case]
    assert rules(reader, writer) == expected


def test_every_problem_is_reported_with_both_sides() -> None:
    found = problems({**closed(a=INTEGER), "required": ["a"]}, closed(a=NUMBER, b=TEXT))
    assert [(problem.path, problem.rule) for problem in found] == [
        ("a", "property_required"),
        ("a", "type_narrowed"),
        ("b", "property_removed"),
    ]
    assert found[1].text == "the writer may write number, the reader accepts integer only: do not narrow it"


def tree(value: Any) -> dict[str, Any]:
    node = closed(value=value, left={"$ref": "#/$defs/node"}, right={"$ref": "#/$defs/node"})
    return {"$ref": "#/$defs/node", "$defs": {"node": node}}


def test_recursive_schemas_are_compared() -> None:
    assert rules(tree(NUMBER), tree(INTEGER)) == []
    assert ("value", "type_narrowed") in rules(tree(INTEGER), tree(NUMBER))


def test_recursion_of_different_shapes_is_compared() -> None:
    two_steps = {
        "$ref": "#/$defs/even",
        "$defs": {
            "even": closed(next={"$ref": "#/$defs/odd"}),
            "odd": closed(next={"$ref": "#/$defs/even"}),
        },
    }
    one_step = {"$ref": "#/$defs/one", "$defs": {"one": closed(next={"$ref": "#/$defs/one"})}}
    assert rules(one_step, two_steps) == []
    assert rules(two_steps, one_step) == []


def test_an_assumption_that_failed_is_taken_back() -> None:
    def lists(last: Any) -> dict[str, Any]:
        step = {**closed(next={"$ref": "#/$defs/step"}, last=last), "required": ["last"]}
        return {"anyOf": [{"$ref": "#/$defs/step"}, TEXT], "$defs": {"step": step}}

    assert rules(lists(INTEGER), lists(INTEGER) | {"title": "same"}) == []
    assert rules(lists(INTEGER), lists(NUMBER)) != []


def test_given_references_are_compared_too() -> None:
    money = closed(cents=INTEGER)
    reader = closed(total={"$ref": "money.json"}, note={"$ref": "money.json#/properties/cents"})
    writer = closed(total=closed(cents=INTEGER))
    assert rules(reader, writer, money=money) == []
    assert rules(writer, closed(total={"$ref": "money.json"}, fee=TEXT), money=money) == [
        ("fee", "property_removed")
    ]


def test_a_comparison_too_deep_to_finish_says_so() -> None:
    def chain(last: Any, length: int) -> dict[str, Any]:
        steps = {f"d{i}": closed(x={"$ref": f"#/$defs/d{i + 1}"}) for i in range(length)}
        return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{length}": last}}

    assert rules(chain(NUMBER, 20), chain(INTEGER, 20)) == []
    assert rules(chain(NUMBER, 200), chain(INTEGER, 200)) == [("", "cannot_be_shown")]
