"""If a JSON Schema is called compatible, every document of the old schema fits the new one.

A pair is a schema written by dice and the same with a few places changed; both are tried on two thousand
documents by the validator itself. Where the old schema says nothing of additional properties, documents hold
the properties it declares and no others. An example is one seed, so a failure is replayed by its number.
"""

import copy
import json
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from pydanube.kernel.errors import Rejected
from pydanube.schemas.json_schema import JsonSchema, parse_json_schema
from pydanube.schemas.json_types import EVERY_TYPE, Node

DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
NAMES = ("a", "b", "x-c")
PATTERNS = ("^x-", "^a", "b$")
TYPES = ("object", "array", "string", "integer", "number", "null", "boolean")
SCALARS = (None, True, False, 0, 1, 2, 3, 4, 5, -1, 0.5, 1.0, 2.0, 2.5, 5.0, "", "a", "bb", "x-c", "abcd")
LISTED = (*SCALARS, [], [1], [1.0], {}, {"a": 1})
LEAVES = ({}, {"type": "integer"}, {"type": "string"}, {"type": ["string", "null"]}, {"enum": [1, "a"]})
MAPS = ("properties", "patternProperties", "dependencies", "dependentRequired", "dependentSchemas")

SCHEMA_KEYWORDS = {
    4: ("additionalProperties", "items", "not"),
    6: ("propertyNames", "contains"),
    7: ("if", "then", "else"),
    2019: ("unevaluatedItems", "unevaluatedProperties"),
}
COUNT_KEYWORDS = {
    4: ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
    2019: ("minContains", "maxContains"),
}
OTHER_KEYWORDS = {
    4: (
        "type",
        "type",
        "type",
        "enum",
        "minimum",
        "maximum",
        "multipleOf",
        "pattern",
        "properties",
        "required",
        "patternProperties",
        "uniqueItems",
        "allOf",
        "anyOf",
        "oneOf",
        "$ref",
        "dependencies",
    ),
    6: ("const", "exclusiveMinimum", "exclusiveMaximum"),
    2019: ("dependentRequired", "dependentSchemas"),
    2020: ("prefixItems",),
}

# What may tell of properties a schema does not declare by itself.
BESIDE_PROPERTIES = (
    "additionalProperties",
    "patternProperties",
    "required",
    "allOf",
    "anyOf",
    "oneOf",
    "$ref",
)


def known(table: dict[int, tuple[str, ...]], draft: int) -> list[str]:
    return [keyword for since, keywords in table.items() if draft >= since for keyword in keywords]


class Author:
    """Writes and changes schemas of one draft."""

    def __init__(self, dice: random.Random, draft: int) -> None:
        self.dice = dice
        self.draft = draft
        self.schema_keywords = known(SCHEMA_KEYWORDS, draft)
        self.count_keywords = known(COUNT_KEYWORDS, draft)
        self.keywords = [*self.schema_keywords, *self.count_keywords, *known(OTHER_KEYWORDS, draft)]
        if draft < 2020:
            self.keywords.append("additionalItems")
        if draft in (6, 7):
            self.keywords.append("contentEncoding")

    def definition(self) -> dict[str, Any]:
        root = self.schema(3)
        return {
            **(root if isinstance(root, dict) else {}),
            "$schema": DRAFTS[self.draft],
            "definitions": {"d": self.schema(2), "e": self.schema(1)},
        }

    def schema(self, depth: int) -> Any:
        if self.draft > 4 and self.dice.random() < 0.06:
            return self.dice.choice([True, False])
        if depth <= 0:
            return copy.deepcopy(self.dice.choice(LEAVES))
        schema: dict[str, Any] = {}
        chosen = self.dice.sample(self.keywords, self.dice.randint(1, 4))
        if self.dice.random() < 0.4:
            schema["type"] = "object"
            chosen = ["properties", *self.dice.sample(BESIDE_PROPERTIES, self.dice.randint(0, 2))]
        for keyword in chosen:
            schema.update(self.assertion(keyword, depth))
        return schema

    def assertion(self, keyword: str, depth: int) -> dict[str, Any]:
        dice = self.dice

        def below() -> Any:
            return self.schema(depth - 1 - (dice.random() < 0.4))

        if keyword in self.schema_keywords:
            return {keyword: below()}
        if keyword in self.count_keywords:
            return {keyword: dice.randint(0, 3)}
        match keyword:
            case "type":
                return {
                    "type": dice.choice(TYPES)
                    if dice.random() < 0.6
                    else dice.sample(TYPES, dice.randint(1, 3))
                }
            case "enum":
                return {
                    "enum": dice.sample(
                        [None, True, 0, 1.0, 2.5, "", "a", "bb", [1], {"a": 1}], dice.randint(1, 3)
                    )
                }
            case "const":
                return {"const": dice.choice(LISTED)}
            case "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum":
                exclusive = {"exclusiveMinimum": True} if self.draft == 4 and keyword == "minimum" else {}
                return {keyword: dice.choice([-1, 0, 1, 2, 2.5, 5]), **exclusive}
            case "multipleOf":
                return {keyword: dice.choice([1, 2, 3, 4, 0.5, 2.5])}
            case "pattern":
                return {keyword: dice.choice(PATTERNS)}
            case "properties":
                return {keyword: {name: below() for name in dice.sample(NAMES, dice.randint(1, 2))}}
            case "patternProperties":
                return {keyword: {name: below() for name in dice.sample(PATTERNS, dice.randint(1, 2))}}
            case "required":
                return {keyword: dice.sample(NAMES, dice.randint(1, 2))}
            case "dependencies":
                return {keyword: {dice.choice(NAMES): ["b"] if dice.random() < 0.5 else below()}}
            case "dependentRequired":
                return {keyword: {dice.choice(NAMES): [dice.choice(NAMES)]}}
            case "dependentSchemas":
                return {keyword: {dice.choice(NAMES): below()}}
            case "additionalItems":
                return {"items": [below() for _ in range(dice.randint(1, 2))], keyword: below()}
            case "uniqueItems":
                return {keyword: True}
            case "contentEncoding":
                return {keyword: "base64"}
            case "$ref":
                return {keyword: dice.choice(["#/definitions/d", "#/definitions/e", "#"])}
            case _:
                return {keyword: [below() for _ in range(dice.randint(1, 3))]}

    def changed(self, definition: dict[str, Any]) -> dict[str, Any]:
        definition = copy.deepcopy(definition)
        for _ in range(self.dice.choice([1, 1, 2, 3])):
            places = list(changeable(definition))
            if places:
                self.change(*self.dice.choice(places))
        if self.dice.random() < 0.3:
            definition = {**self.assertion(self.dice.choice(self.keywords), 2), **definition}
        return definition

    def change(self, owner: Any, key: Any) -> None:
        value, way = owner[key], self.dice.random()
        if way < 0.3:
            del owner[key]
        elif key == "enum":
            value.append("new")
        elif key == "type":
            owner[key] = sorted({*([value] if isinstance(value, str) else value), self.dice.choice(TYPES)})
        elif key == "required":
            owner[key] = sorted({*value, self.dice.choice(NAMES)})
        elif type(value) in (int, float):
            owner[key] = max(value + self.dice.choice([-1, 1]), 0.5 if key == "multipleOf" else 0)
        elif key == "properties":
            value[self.dice.choice(NAMES)] = self.schema(1)
        elif isinstance(value, dict) and key not in MAPS:
            other = self.schema(1)
            owner[key] = self.dice.choice(
                [
                    other,
                    {"anyOf": [value, other]},
                    {"anyOf": [other, value]},
                    {"oneOf": [value, other]},
                    {"allOf": [value, other]},
                ]
            )


def changeable(value: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(value, dict):
        for key, below in value.items():
            if key not in ("definitions", "$schema"):
                yield value, key
            yield from changeable(below)
    elif isinstance(value, list):
        for index, below in enumerate(value):
            if isinstance(below, dict):
                yield value, index
            yield from changeable(below)


def documents() -> list[Any]:
    dice = random.Random(5)

    def value(depth: int) -> Any:
        way = dice.random()
        if depth == 0 or way < 0.4:
            return dice.choice(SCALARS)
        if way < 0.7:
            return [value(depth - 1) for _ in range(dice.randint(0, 3))]
        return {name: value(depth - 1) for name in dice.sample((*NAMES, "z", "ab"), dice.randint(0, 3))}

    return [*SCALARS, *(value(dice.randint(1, 3)) for _ in range(1000))]


DOCUMENTS = documents()

Parts = Callable[[Node, Any], Iterable[Node | None]]


def every_part(node: Node, value: Any) -> Iterable[Node | None]:
    """All that looks at the same value as a node, whether it holds or not."""
    return node.in_place()


def holding_parts(node: Node, value: Any) -> Iterator[Node | None]:
    """What looks at the same value as a node and holds for it."""
    yield from node.all_of
    yield from (branch for branch in (*(node.any_of or ()), *(node.one_of or ())) if branch.accepts(value))
    if node.if_ is not None:
        yield from (node.if_, node.then) if node.if_.accepts(value) else (node.else_,)
    if isinstance(value, dict):
        yield from (part for name, part in node.dependent_schemas if name in value)


def looking_at(value: Any, nodes: Iterable[Node | None], parts: Parts) -> list[Node]:
    found: dict[Node, None] = {}
    pending = [node for node in nodes if node is not None]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending.extend(part for part in parts(node, value) if part is not None)
    return list(found)


def refused_names(value: dict[str, Any], nodes: list[Node]) -> set[str]:
    """The properties an object is taken not to have by the nodes that look at it."""
    typed = any(node.types != EVERY_TYPE and "object" in node.types for node in nodes)
    declared = any(node.properties for node in nodes)
    stated = any(
        node.patterns or node.additional or node.unevaluated_properties or node.names for node in nodes
    )
    if stated or not (typed or declared):
        return set()
    known = {name for node in nodes for name in (*node.properties, *node.required)}
    for node in nodes:
        known.update(*({name, *needed} for name, needed in node.dependent_required.items()))
    # A free-form object may hold anything but what a later schema describes: of all names, these three.
    free_form = not declared or max(node.properties_min for node in nodes) > len(known)
    return {name for name in value if name not in known and (name in NAMES or not free_form)}


def at_property(nodes: list[Node], name: str) -> list[Node | None]:
    return [child for node in nodes for child in (*node.at_property(name), node.unevaluated_properties)]


def at_item(nodes: list[Node], index: int, value: Any) -> list[Node | None]:
    chosen = [node.contains for node in nodes if node.contains is not None and node.contains.accepts(value)]
    return [*chosen, *(child for node in nodes for child in (node.at_item(index), node.unevaluated_items))]


def pruned(value: Any, looking: Iterable[Node | None]) -> Any:
    """A document without the properties no part of the schema speaks of."""
    nodes = looking_at(value, looking, every_part)
    if isinstance(value, dict):
        gone = refused_names(value, nodes)
        return {
            name: pruned(part, at_property(nodes, name)) for name, part in value.items() if name not in gone
        }
    if isinstance(value, list):
        return [pruned(part, at_item(nodes, index, part)) for index, part in enumerate(value)]
    return value


def is_declared(value: Any, looking: Iterable[Node | None]) -> bool:
    """Whether a document that fits holds no property that is taken to be absent."""
    nodes = looking_at(value, looking, holding_parts)
    if isinstance(value, dict):
        return not refused_names(value, nodes) and all(
            is_declared(part, at_property(nodes, name)) for name, part in value.items()
        )
    if isinstance(value, list):
        return all(is_declared(part, at_item(nodes, index, part)) for index, part in enumerate(value))
    return True


def broken_by(new: JsonSchema, old: JsonSchema) -> list[bytes]:
    """The documents of the old schema that the new one refuses."""
    broken = []
    tried = {json.dumps(one): one for each in DOCUMENTS for one in (each, pruned(each, [old.root]))}
    for text, document in tried.items():
        payload = text.encode()
        if new.check_payload(payload) is None or old.check_payload(payload) is not None:
            continue
        if is_declared(document, [old.root]):
            broken.append(payload)
    return broken


def parsed(definition: dict[str, Any]) -> JsonSchema:
    return parse_json_schema(json.dumps(definition).encode(), {})


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**40))
def test_what_is_called_compatible_accepts_every_old_document(seed: int) -> None:
    dice = random.Random(seed)
    author = Author(dice, dice.choice(list(DRAFTS)))
    old_definition = author.definition()
    new_definition = author.changed(old_definition)
    if dice.random() < 0.1:
        new_definition["$schema"] = DRAFTS[dice.choice(list(DRAFTS))]
    try:
        old, new = parsed(old_definition), parsed(new_definition)
    except Rejected:
        event("refused")
        return
    problems = new.problems_reading(old)
    broken = broken_by(new, old)
    event(f"{'incompatible' if problems else 'compatible'}, {'some' if broken else 'no'} document is broken")
    assert problems or not broken, (old_definition, new_definition, broken[0])


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**40))
def test_a_schema_is_compatible_with_itself_under_another_title(seed: int) -> None:
    dice = random.Random(seed)
    definition = Author(dice, dice.choice(list(DRAFTS))).definition()
    try:
        schema, titled = parsed(definition), parsed({**definition, "title": "another"})
    except Rejected:
        return
    assert titled.problems_reading(schema) == []
