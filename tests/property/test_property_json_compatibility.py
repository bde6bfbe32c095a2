"""If a JSON Schema is called compatible, every document of the old schema fits the new one.

Pairs are made by writing a schema at random and changing it in a few places at random; documents are made from
the old schema, then bent here and there, and judged by the validator itself.
"""

import copy
import json
from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pydanube.kernel.errors import Rejected
from pydanube.schemas.format import SchemaKind, parse_schema

NAMES = ("a", "b", "x-c")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([0.5, 1.0, 2.5, 7.0]),
    st.sampled_from(["", "a", "bb", "xyz"]),
)
PATTERNS = ("^x-", "^a", "b$")
DRAFTS = (
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
)
MODERN = DRAFTS[2:]


def small(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One keyword or another beside a type."""
    below = st.one_of(strategy, strategy, st.just(True), st.just(False))
    schemas = st.dictionaries(st.sampled_from(NAMES), below, max_size=2)
    lists = st.lists(strategy, min_size=1, max_size=3)
    numbers = st.integers(0, 4)
    keywords = {
        "type": st.one_of(
            st.sampled_from(["object", "array", "string", "integer", "number", "null", "boolean"]),
            st.lists(
                st.sampled_from(["object", "array", "string", "integer", "number", "null"]),
                min_size=1,
                max_size=3,
                unique=True,
            ),
        ),
        "enum": st.lists(SCALARS, min_size=1, max_size=3, unique_by=repr),
        "const": SCALARS,
        "minimum": st.integers(-2, 8),
        "maximum": st.integers(-2, 8),
        "exclusiveMinimum": st.integers(-2, 8),
        "exclusiveMaximum": st.integers(-2, 8),
        "multipleOf": st.sampled_from([1, 2, 3, 4, 0.5]),
        "minLength": numbers,
        "maxLength": numbers,
        "pattern": st.sampled_from(PATTERNS),
        "properties": schemas,
        "patternProperties": st.dictionaries(st.sampled_from(PATTERNS), below, max_size=2),
        "additionalProperties": below,
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "minProperties": st.integers(0, 2),
        "maxProperties": st.integers(0, 3),
        "propertyNames": st.sampled_from([{"pattern": "^a"}, {"maxLength": 1}, True, {"enum": ["a", "b"]}]),
        "dependentRequired": st.just({"a": ["b"]}),
        "dependentSchemas": st.dictionaries(st.sampled_from(NAMES), strategy, max_size=1),
        "items": below,
        "prefixItems": lists,
        "minItems": st.integers(0, 2),
        "maxItems": st.integers(0, 3),
        "uniqueItems": st.booleans(),
        "contains": strategy,
        "minContains": st.integers(0, 2),
        "maxContains": st.integers(0, 2),
        "unevaluatedItems": below,
        "unevaluatedProperties": below,
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": strategy,
        "if": strategy,
        "then": strategy,
        "else": strategy,
        "$ref": st.sampled_from(["#/$defs/d", "#/$defs/e", "#"]),
    }
    names = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=4, unique=True)
    return names.flatmap(lambda chosen: st.fixed_dictionaries({name: keywords[name] for name in chosen}))


SCHEMAS = st.recursive(
    st.sampled_from(
        [{}, {"type": "integer"}, {"type": "string"}, {"type": ["string", "null"]}, {"enum": [1, "a"]}]
    ),
    small,
    max_leaves=6,
)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    schema = draw(SCHEMAS)
    root = dict(schema) if isinstance(schema, dict) else {}
    return {**root, "$defs": {"d": draw(SCHEMAS), "e": draw(SCHEMAS)}}


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    """The schema with one to three of its places replaced, widened or dropped."""
    schema = copy.deepcopy(schema)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(schema))
        if not places:
            return schema
        owner, key = draw(st.sampled_from(places))
        match draw(st.integers(0, 5)):
            case 0:
                del owner[key]
            case 1 if isinstance(owner[key], int | float) and not isinstance(owner[key], bool):
                owner[key] = max(0.5, owner[key] + draw(st.sampled_from([-1, 1, 2])))
                owner[key] = int(owner[key]) if key != "multipleOf" else owner[key]
            case 1 | 2 if (
                isinstance(owner[key], list) and isinstance(owner, dict) and key not in ("dependentRequired",)
            ):
                owner[key] = owner[key] + [
                    item for item in draw(st.just(owner[key])) if isinstance(item, dict)
                ]
                if key == "enum":
                    owner[key] = [*owner[key], "new"]
            case 3 if isinstance(owner[key], dict) and key not in (
                "properties",
                "patternProperties",
                "$defs",
            ):
                owner[key] = {"anyOf": [owner[key], {"type": "null"}]}
            case _:
                if isinstance(owner, dict) and isinstance(owner[key], dict | bool) and key not in FIXED:
                    owner[key] = draw(SCHEMAS)
    return schema


FIXED = ("properties", "patternProperties", "$defs", "dependentRequired", "dependentSchemas", "uniqueItems")


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key, below in value.items():
            if key not in ("$defs", "$schema", "$ref"):
                yield value, key
            yield from _places(below)
    elif isinstance(value, list):
        for below in value:
            yield from _places(below)


VALUES = st.recursive(
    SCALARS,
    lambda below: st.one_of(
        st.lists(below, max_size=3), st.dictionaries(st.sampled_from((*NAMES, "z")), below, max_size=3)
    ),
    max_leaves=5,
)


@st.composite
def documents(draw: st.DrawFn, schema: Any, root: Any, depth: int = 4) -> Any:
    """A value that has a fair chance to fit; the validator has the last word."""
    if not isinstance(schema, dict) or depth == 0 or draw(st.integers(0, 9)) == 0:
        return draw(VALUES)
    if "$ref" in schema and draw(st.booleans()):
        target = root if schema["$ref"] == "#" else root["$defs"][schema["$ref"][-1]]
        return draw(documents(target, root, depth - 1))
    for key in ("const",):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return draw(st.sampled_from(schema["enum"]))
    branches = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ())]
    if branches and draw(st.booleans()):
        return draw(documents(draw(st.sampled_from(branches)), root, depth - 1))
    kinds = schema.get("type", ["object", "array", "string", "integer", "number", "null", "boolean"])
    kind = kinds if isinstance(kinds, str) else draw(st.sampled_from(kinds))
    if kind == "object":
        named = schema.get("properties", {})
        wanted = set(schema.get("required", ())) | set(
            draw(st.lists(st.sampled_from((*NAMES, "z")), max_size=3))
        )
        further = schema.get("additionalProperties", True)
        return {name: draw(documents(named.get(name, further), root, depth - 1)) for name in sorted(wanted)}
    if kind == "array":
        items = [draw(documents(part, root, depth - 1)) for part in schema.get("prefixItems", ())]
        rest = schema.get("items", schema.get("contains", True))
        return items + [draw(documents(rest, root, depth - 1)) for _ in range(draw(st.integers(0, 3)))]
    if kind in ("integer", "number"):
        return draw(
            st.integers(-3, 12) | (st.sampled_from([0.5, 1.0, 2.5]) if kind == "number" else st.just(2.0))
        )
    return draw(
        {"string": st.sampled_from(["", "a", "bb", "x-c", "xyz"]), "null": st.none()}.get(kind, st.booleans())
    )


def parsed(schema: Any) -> Any:
    return parse_schema(SchemaKind.JSON_SCHEMA, json.dumps(schema).encode())


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_is_called_compatible_accepts_every_old_document(data: st.DataObject) -> None:
    draft = data.draw(st.sampled_from(MODERN))
    old_definition = {"$schema": draft, **data.draw(definitions())}
    new_definition = data.draw(changed(old_definition))
    try:
        old, new = parsed(old_definition), parsed(new_definition)
    except Rejected:
        event("refused")
        return
    problems = new.problems_reading(old)
    event("incompatible" if problems else "compatible")
    if problems:
        return
    for _ in range(8):
        document = data.draw(documents(old_definition, old_definition))
        payload = json.dumps(document).encode()
        if old.check_payload(payload) is None:
            event("document fits")
            assert new.check_payload(payload) is None, (old_definition, new_definition, document)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(definitions())
def test_a_schema_is_compatible_with_itself_under_another_title(definition: dict[str, Any]) -> None:
    try:
        schema, titled = parsed(definition), parsed({**definition, "title": "another"})
    except Rejected:
        return
    assert titled.problems_reading(schema) == []
