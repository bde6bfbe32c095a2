"""If a JSON Schema is called compatible, every document of the old schema fits the new one.

A pair is a schema written by dice and the same with a few places changed; both are tried on a thousand
documents by the validator itself. An example is one seed, so a failure is replayed by its number.
"""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from pydanube.kernel.errors import Rejected
from pydanube.schemas.json_schema import JsonSchema, parse_json_schema

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
        for keyword in self.dice.sample(self.keywords, self.dice.randint(1, 4)):
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


def documents() -> list[bytes]:
    dice = random.Random(5)

    def value(depth: int) -> Any:
        way = dice.random()
        if depth == 0 or way < 0.4:
            return dice.choice(SCALARS)
        if way < 0.7:
            return [value(depth - 1) for _ in range(dice.randint(0, 3))]
        return {name: value(depth - 1) for name in dice.sample((*NAMES, "z", "ab"), dice.randint(0, 3))}

    return [
        json.dumps(document).encode()
        for document in (*SCALARS, *(value(dice.randint(1, 3)) for _ in range(1000)))
    ]


DOCUMENTS = documents()


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
    broken = [
        text for text in DOCUMENTS if old.check_payload(text) is None and new.check_payload(text) is not None
    ]
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
