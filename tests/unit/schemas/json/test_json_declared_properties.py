"""Where a schema says nothing of additional properties, data holds the properties it declares."""

import json
from typing import Any

import pytest

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.json_schema import parse_json_schema

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}
ID = {"type": "object", "properties": {"id": INTEGER}}
ID_AND_EMAIL = {"type": "object", "properties": {"id": INTEGER, "email": TEXT}}


def problems(reader: Any, writer: Any) -> list[Incompatibility]:
    new = parse_json_schema(json.dumps(reader).encode(), {})
    return new.problems_reading(parse_json_schema(json.dumps(writer).encode(), {}))


def rules(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(problem.path, problem.rule) for problem in problems(reader, writer)]


# A place where one object schema can stand, whichever it is.
PLACES: dict[str, Any] = {
    "the document": lambda schema: schema,
    "a nested object": lambda schema: {"type": "object", "properties": {"user": schema}},
    "a nested object of an open one": lambda schema: {
        "type": "object",
        "properties": {"user": schema},
        "additionalProperties": True,
    },
    "an array": lambda schema: {"type": "array", "items": schema},
    "a tuple": lambda schema: {"type": "array", "prefixItems": [INTEGER, schema], "items": False},
    "a map": lambda schema: {"type": "object", "additionalProperties": schema},
    "a map by pattern": lambda schema: {"type": "object", "patternProperties": {"^u": schema}},
    "a reference": lambda schema: {"$ref": "#/$defs/user", "$defs": {"user": schema}},
    "allOf": lambda schema: {"allOf": [{"properties": {"at": INTEGER}}, schema], "required": ["at"]},
    "anyOf": lambda schema: {"anyOf": [{"type": "null"}, schema]},
    "oneOf beside a closed branch": lambda schema: {
        "oneOf": [
            {"type": "object", "properties": {"x": TEXT}, "required": ["x"], "additionalProperties": False},
            {**schema, "required": ["id"]},
        ]
    },
}


@pytest.mark.parametrize("place", PLACES)
def test_an_optional_property_comes_and_goes_in_both_directions(place: str) -> None:
    without, with_email = PLACES[place](ID), PLACES[place](ID_AND_EMAIL)
    assert rules(with_email, without) == []
    assert rules(without, with_email) == []


@pytest.mark.parametrize("schema", [TEXT, {"enum": ["a"]}, {"type": "object", "required": ["x"]}, False])
def test_the_new_property_may_have_any_schema(schema: Any) -> None:
    assert rules({"type": "object", "properties": {"id": INTEGER, "new": schema}}, ID) == []


def test_a_required_property_may_be_dropped_and_not_added() -> None:
    required = {**ID_AND_EMAIL, "required": ["email"]}
    assert rules(required, ID) == [("email", "property_required")]
    assert rules(ID, required) == []


def test_declared_properties_are_still_compared() -> None:
    assert rules({"type": "object", "properties": {"id": TEXT, "email": TEXT}}, ID) == [
        ("id", "type_narrowed")
    ]


STATED: dict[str, dict[str, Any]] = {
    "any additional": {"additionalProperties": True},
    "additional by a schema": {"additionalProperties": INTEGER},
    "patterns": {"patternProperties": {"^e": INTEGER}},
    "other patterns": {"patternProperties": {"^x-": INTEGER}},
    "unevaluated": {"unevaluatedProperties": True},
    "names": {"propertyNames": {"maxLength": 9}},
    "a part that is open": {"allOf": [{"additionalProperties": True}]},
}


@pytest.mark.parametrize("statement", STATED)
def test_what_is_said_of_additional_properties_is_taken_at_its_word(statement: str) -> None:
    [problem] = problems({**ID_AND_EMAIL}, {**ID, **STATED[statement]})
    assert (problem.path, problem.rule) == ("email", "property_added_to_open")
    assert "'email'" in problem.text
    assert "state it in the writer's schema (backward: the old one)" in problem.text
    assert "or leave additionalProperties out" in problem.text


def test_a_property_that_follows_from_what_is_said_may_be_added() -> None:
    assert rules(ID_AND_EMAIL, {**ID, "additionalProperties": TEXT}) == []


def test_a_property_another_branch_may_bring_is_not_taken_to_be_absent() -> None:
    writer = {**ID, "anyOf": [{"properties": {"email": INTEGER}}, {"properties": {"fax": TEXT}}]}
    assert rules({"properties": {"email": TEXT}}, writer) != []
    assert rules({"properties": {"phone": TEXT}}, writer) == []


def test_a_nested_property_another_branch_may_bring_is_not_taken_to_be_absent() -> None:
    writer = {
        "properties": {"user": ID},
        "anyOf": [{"properties": {"user": {"properties": {"email": INTEGER}}}}, {"maxProperties": 5}],
    }
    assert rules({"properties": {"user": {"properties": {"email": TEXT}}}}, writer) != []
    assert rules({"properties": {"user": {"properties": {"phone": TEXT}}}}, writer) == []


def test_a_required_property_without_a_declaration_may_be_anything() -> None:
    writer = {**ID, "required": ["email"]}
    assert rules(ID_AND_EMAIL, writer) == [("email", "property_added_to_open")]


def test_an_object_without_declarations_may_be_given_properties_and_not_be_closed() -> None:
    free_form = {"type": "object"}
    assert rules(ID, free_form) == []
    assert rules({"type": "object", "additionalProperties": False}, free_form) == [("*", "properties_closed")]
    assert rules({"type": "object", "additionalProperties": INTEGER}, free_form) == [("*", "type_narrowed")]


@pytest.mark.parametrize("anything", [{}, True])
def test_a_schema_of_anything_is_no_schema_of_objects(anything: Any) -> None:
    assert rules({"properties": {"id": INTEGER}}, anything) == [("id", "property_added_to_open")]


def test_the_assumption_never_leaves_a_writer_without_data() -> None:
    map_like = {**ID, "minProperties": 3}
    assert rules({"type": "string"}, map_like) == [("", "type_narrowed")]


def test_recursive_schemas_grow_at_every_level() -> None:
    def tree(**properties: Any) -> dict[str, Any]:
        node = {"type": "object", "properties": {"left": {"$ref": "#/$defs/node"}, **properties}}
        return {"$ref": "#/$defs/node", "$defs": {"node": node}}

    assert rules(tree(id=INTEGER, email=TEXT), tree(id=INTEGER)) == []
    assert rules(tree(id=INTEGER), tree(id=INTEGER, email=TEXT)) == []
