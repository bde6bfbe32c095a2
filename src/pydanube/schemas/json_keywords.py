"""What each keyword of a reader's JSON Schema demands, and whether the facts of a written value grant it."""

import math
from collections.abc import Iterator

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.json_facts import Facts
from pydanube.schemas.json_objects import object_problems
from pydanube.schemas.json_proof import Proof, below, narrowed
from pydanube.schemas.json_types import (
    ARRAY,
    EVERY_TYPE,
    NUMERIC,
    OBJECT,
    STRING,
    WHOLE,
    Bound,
    Node,
    spell_types,
)

Problems = Iterator[Incompatibility]


def keyword_problems(proof: Proof, facts: Facts, node: Node) -> Problems:
    """Problems with the keywords of the node itself, for each type the value may have."""
    if node.never:
        yield Incompatibility("", "nothing_accepted", "the reader accepts nothing here: keep accepting it")
        return
    yield from _type_problems(facts, node)
    if node.values is not None:
        text = "the reader accepts only listed values, the writer is not limited to them: list all or none"
        yield Incompatibility("", "enum_narrowed", text)
    possible = facts.types & node.types
    if possible & NUMERIC:
        yield from _number_problems(facts, node)
    if STRING in possible:
        yield from _string_problems(facts, node)
    if ARRAY in possible:
        yield from _array_problems(proof, facts, node)
    if OBJECT in possible:
        yield from object_problems(proof, facts, node)


def _type_problems(facts: Facts, node: Node) -> Problems:
    refused = facts.types - node.types
    if refused:
        writes = "any type" if facts.types == EVERY_TYPE else spell_types(facts.types)
        text = f"the writer may write {writes}, the reader accepts {spell_types(node.types)} only: do not narrow it"
        yield Incompatibility("", "type_narrowed", text)


def _number_problems(facts: Facts, node: Node) -> Problems:
    if node.lower and not (facts.lower and _at_least(facts.lower, node.lower)):
        yield narrowed("minimum", _spelled(facts.lower), _spelled(node.lower))
    if node.upper and not (facts.upper and _at_most(facts.upper, node.upper)):
        yield narrowed("maximum", _spelled(facts.upper), _spelled(node.upper))
    step = node.multiple_of
    if step is not None:
        steps = [known.multiple_of for known in facts.atoms if known.multiple_of is not None]
        if facts.types & NUMERIC <= WHOLE:
            steps.append(type(step)(1))
        # Validators divide floating-point numbers: only whole steps follow from one another for sure.
        if step not in steps and not any(
            one.denominator == 1 == step.denominator and one % step == 0 for one in steps
        ):
            yield narrowed("multipleOf", str(float(min(steps))) if steps else "none", str(float(step)))


def _string_problems(facts: Facts, node: Node) -> Problems:
    yield from _range_problems(facts, node, "length_min", "length_max", "Length")
    if node.pattern is not None and all(known.pattern != node.pattern for known in facts.atoms):
        text = f"cannot be shown that what is written matches the reader's pattern {node.pattern[:64]!r}: keep the pattern"
        yield Incompatibility("", "pattern_changed", text)
    for content in node.content:
        if all(content not in known.content for known in facts.atoms):
            text = f"cannot be shown that what is written has the reader's {content[0]} {content[1]!r}"
            yield Incompatibility("", "cannot_be_shown", text)


def _array_problems(proof: Proof, facts: Facts, node: Node) -> Problems:
    least = facts.least("items_min")
    if node.items_min > least:
        yield narrowed("minItems", str(least), str(node.items_min))
    if node.items_max is not None and facts.items_end > node.items_max:
        yield narrowed("maxItems", _limit(facts.items_end), str(node.items_max))
    if node.unique and facts.items_end > 1 and not any(known.unique for known in facts.atoms):
        yield Incompatibility("", "unique_items", "the reader wants unique items, the writer may repeat one")
    beyond = max(facts.prefix_length, len(node.prefix))
    for index in range(beyond + 1):
        item = node.at_item(index)
        if facts.items_end <= index:
            break
        if item is None:
            continue
        place = "[]" if index == beyond else f"[{index}]"
        known = facts.at_item(index)
        if item.never:
            text = f"the writer may write item {index} and further ones, the reader accepts none: keep accepting them"
            if known.types:
                yield Incompatibility(place, "items_closed", text)
        else:
            yield from below(place, proof.problems(known, item))
    yield from _contains_problems(proof, facts, node, beyond)
    if node.unevaluated_items is not None and not any(proof.same(known, node) for known in facts.atoms):
        text = "cannot be shown which items the reader's 'unevaluatedItems' leaves over: use 'items'"
        yield Incompatibility("[]", "cannot_be_shown", text)


def _contains_problems(proof: Proof, facts: Facts, node: Node, beyond: int) -> Problems:
    wanted = node.contains
    if wanted is None or (node.contains_min == 0 and node.contains_max is None):
        return
    most = math.inf if node.contains_max is None else node.contains_max
    for known in facts.atoms:
        if known.contains is not None and proof.same(known.contains, wanted):
            known_most = math.inf if known.contains_max is None else known.contains_max
            if known.contains_min >= node.contains_min and known_most <= most:
                return
    counted = facts.least("items_min") >= node.contains_min and facts.items_end <= most
    if counted and all(proof.holds(facts.at_item(index), wanted) for index in range(beyond + 1)):
        return
    text = "cannot be shown that what is written contains the item the reader wants"
    yield Incompatibility("[]", "contains_changed", text)


def _range_problems(facts: Facts, node: Node, least: str, most: str, keyword: str) -> Problems:
    known_least, wanted_least = facts.least(least), getattr(node, least)
    if wanted_least > known_least:
        yield narrowed(f"min{keyword}", str(known_least), str(wanted_least))
    known_most, wanted_most = facts.most(most), getattr(node, most)
    if wanted_most is not None and (known_most is None or known_most > wanted_most):
        yield narrowed(f"max{keyword}", "none" if known_most is None else str(known_most), str(wanted_most))


def _at_least(known: Bound, wanted: Bound) -> bool:
    return known.value > wanted.value or (
        known.value == wanted.value and (known.exclusive or not wanted.exclusive)
    )


def _at_most(known: Bound, wanted: Bound) -> bool:
    return known.value < wanted.value or (
        known.value == wanted.value and (known.exclusive or not wanted.exclusive)
    )


def _spelled(bound: Bound | None) -> str:
    if bound is None:
        return "none"
    value = bound.value
    number = str(value.numerator) if value.denominator == 1 else str(float(value))
    return f"{number} (exclusive)" if bound.exclusive else number


def _limit(end: float) -> str:
    return "none" if end == math.inf else str(end)
