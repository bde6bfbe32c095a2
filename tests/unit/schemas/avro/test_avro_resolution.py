"""Which Avro readers can read which writers, and what they are told if not."""

import json
from typing import Any

import pytest

from pydanube.schemas.avro_schema import parse_avro
from pydanube.schemas.format import Incompatibility

SYMBOLS = {"type": "enum", "name": "E", "symbols": ["A", "B"]}


def problems(reader: Any, writer: Any) -> list[Incompatibility]:
    return parse_avro(json.dumps(reader).encode(), {}).problems_reading(
        parse_avro(json.dumps(writer).encode(), {})
    )


def rules(reader: Any, writer: Any) -> list[tuple[str, str]]:
    return [(problem.path, problem.rule) for problem in problems(reader, writer)]


def record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


PRIMITIVES = ["null", "boolean", "int", "long", "float", "double", "bytes", "string"]
PROMOTIONS = {
    ("int", "long"),
    ("int", "float"),
    ("int", "double"),
    ("long", "float"),
    ("long", "double"),
    ("float", "double"),
    ("string", "bytes"),
    ("bytes", "string"),
}


@pytest.mark.parametrize("reader", PRIMITIVES)
@pytest.mark.parametrize("writer", PRIMITIVES)
def test_primitives_are_read_as_themselves_or_promoted(writer: str, reader: str) -> None:
    readable = writer == reader or (writer, reader) in PROMOTIONS
    assert rules(reader, writer) == ([] if readable else [("", "type_changed")])


def test_a_new_field_needs_a_default() -> None:
    old = record(field("a", "int"))
    assert rules(record(field("a", "int"), field("b", "int", default=1)), old) == []
    assert rules(record(field("a", "int"), field("b", ["null", "int"])), old) == [
        ("b", "field_without_default")
    ]
    assert "give it a default" in problems(record(field("b", "int")), old)[0].text


def test_a_removed_field_is_skipped() -> None:
    assert rules(record(field("a", "int")), record(field("b", "string"), field("a", "int"))) == []


def test_shared_fields_are_compared_all_the_way_down() -> None:
    def order(price: str) -> dict[str, Any]:
        item = record(field("price", price), name="Item")
        return record(field("order", record(field("items", {"type": "array", "items": item}), name="Order")))

    assert rules(order("double"), order("int")) == []
    assert rules(order("int"), order("double")) == [("order.items[].price", "type_changed")]


def test_every_problem_is_reported() -> None:
    reader = record(field("a", "int"), field("b", "int"), field("c", {"type": "map", "values": "int"}))
    writer = record(field("a", "string"), field("c", {"type": "map", "values": "null"}))
    assert rules(reader, writer) == [
        ("b", "field_without_default"),
        ("a", "type_changed"),
        ("c{}", "type_changed"),
    ]


def test_a_renamed_field_is_found_by_its_alias() -> None:
    old = record(field("a", "int"))
    assert rules(record(field("b", "long", aliases=["a"])), old) == []
    assert rules(record(field("b", "long", aliases=["z"])), old) == [("b", "field_without_default")]
    # The writer's aliases say nothing to a reader.
    assert rules(old, record(field("b", "int", aliases=["a"]))) == [("a", "field_without_default")]


def test_names_match_with_their_namespace_by_alias_or_without_it() -> None:
    old = record(field("a", "int"), name="shop.Order")
    assert rules(record(field("a", "int"), name="shop.Order"), old) == []
    assert rules(record(field("a", "int"), name="Order", namespace="store"), old) == []
    assert rules(record(field("a", "int"), name="store.Purchase", aliases=["shop.Order"]), old) == []
    assert rules(record(field("a", "int"), name="shop.Purchase", aliases=["Order"]), old) == []
    assert rules(record(field("a", "int"), name="shop.Purchase"), old) == [("", "name_changed")]


def test_enums_lose_no_symbol_unless_the_reader_has_a_default() -> None:
    more = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
    assert rules(more, SYMBOLS) == []
    assert rules(SYMBOLS, more) == [("", "enum_symbol_missing")]
    assert "has C" in problems(SYMBOLS, more)[0].text
    assert rules({**SYMBOLS, "default": "A"}, more) == []
    assert rules(SYMBOLS, {**more, "default": "A"}) == [("", "enum_symbol_missing")]


def test_fixed_keeps_its_name_and_size() -> None:
    fixed = {"type": "fixed", "name": "F", "size": 4}
    assert rules(fixed, fixed) == []
    assert rules({**fixed, "size": 5}, fixed) == [("", "fixed_size_changed")]
    assert rules({**fixed, "name": "G"}, fixed) == [("", "name_changed")]
    assert rules("bytes", fixed) == [("", "type_changed")]


def test_each_branch_of_a_writers_union_must_be_readable() -> None:
    assert rules("long", ["int", "long"]) == []
    assert rules("string", ["null", "string"]) == [("|null", "type_changed")]
    assert rules(["null", "string"], "string") == []
    assert rules(["null", "string"], ["string"]) == []
    assert rules(["string"], ["null", "string"]) == [("", "union_branch_missing")]
    assert rules(["null", "double"], ["null", "int"]) == []
    assert rules("int", []) == []


def test_the_records_inside_unions_are_compared() -> None:
    old = ["null", record(field("a", "int"))]
    assert rules(["null", record(field("a", "long"))], old) == []
    assert rules(["null", record(field("a", "string"))], old) == [("|R.a", "type_changed")]
    other = ["null", record(field("a", "string")), record(field("a", "int"), name="x.R")]
    assert rules(other, old) == [("|R.a", "type_changed")]


def test_recursive_types_come_to_an_end() -> None:
    def tree(value: str, **more: Any) -> dict[str, Any]:
        return record(field("value", value), field("next", ["null", "R"]), **more)

    assert rules(tree("long"), tree("int")) == []
    assert rules(tree("int"), tree("long")) == [("value", "type_changed")]


def test_long_chains_of_types_need_no_recursion() -> None:
    def chain(leaf: str) -> list[Any]:
        first = record(field("x", leaf), name="R0")
        return [first, *(record(field("x", f"R{i}"), name=f"R{i + 1}") for i in range(1200))]

    assert rules(chain("long"), chain("int")) == []
    assert [rule for _, rule in rules(chain("int"), chain("long"))] == ["type_changed"]


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.mark.parametrize(
    ("reader", "writer", "rule"),
    [
        (DECIMAL, DECIMAL, None),
        ({**DECIMAL, "scale": 3}, DECIMAL, "decimal_changed"),
        ({**DECIMAL, "precision": 12}, DECIMAL, "decimal_changed"),
        ("bytes", DECIMAL, None),
        (DECIMAL, "bytes", None),
        # A scale beyond the precision makes it no decimal at all.
        ({**DECIMAL, "scale": 11}, DECIMAL, None),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            {"type": "long", "logicalType": "timestamp-millis"},
            "logical_type_changed",
        ),
        (
            {"type": "long", "logicalType": "time-micros"},
            {"type": "int", "logicalType": "date"},
            "logical_type_changed",
        ),
        (
            {"type": "long", "logicalType": "unheard-of"},
            {"type": "long", "logicalType": "timestamp-millis"},
            None,
        ),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 4},
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 5},
            "decimal_changed",
        ),
    ],
)
def test_logical_types_must_mean_the_same(reader: Any, writer: Any, rule: str | None) -> None:
    assert [found for _, found in rules(reader, writer)] == ([rule] if rule else [])


def test_no_more_than_fifty_problems_are_reported() -> None:
    many = record(*(field(f"f{i}", "int") for i in range(60)))
    assert len(problems(many, record())) == 50
    assert (
        len(problems([record(name=f"A{i}") for i in range(90)], [record(name=f"B{i}") for i in range(90)]))
        == 50
    )
