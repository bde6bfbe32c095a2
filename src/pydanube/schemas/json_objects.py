"""The keywords of objects: named properties, patterns, and whether further properties are allowed.

Where a writer says nothing of additional properties, only those it declares are taken to be there: see
`json_declared.py`. Where it does, a reader may not begin to describe a property the writer left open, and may
not close what was open.
"""

import math
from collections.abc import Iterator

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.json_declared import ANYTHING
from pydanube.schemas.json_facts import ONLY_TEXT, Facts, unfolded
from pydanube.schemas.json_proof import Proof, below, narrowed
from pydanube.schemas.json_types import Node

Problems = Iterator[Incompatibility]


def object_problems(proof: Proof, facts: Facts, node: Node) -> Problems:
    """Problems with the object keywords of a node."""
    names = list(dict.fromkeys((*node.properties, *facts.names, *sorted(node.required))))
    yield from _required_problems(facts, node)
    for name in names:
        yield from _property_problems(proof, facts, node, name)
    yield from _other_property_problems(proof, facts, node)
    yield from _count_problems(facts, node)
    yield from _name_problems(proof, facts, node)
    yield from _dependency_problems(proof, facts, node)
    if node.unevaluated_properties is not None:
        yield from _unevaluated_problems(proof, facts, node, names)


def _required_problems(facts: Facts, node: Node) -> Problems:
    for name in sorted(node.required - facts.required):
        text = f"the reader requires '{name}', the writer may leave it out: make it optional"
        yield Incompatibility(_step(name), "property_required", text)


def _property_problems(proof: Proof, facts: Facts, node: Node, name: str) -> Problems:
    wanted = node.at_property(name)
    if not wanted or (name in node.properties and facts.taken_as_absent(name)):
        return
    known = facts.at_property(name)
    for child in wanted:
        if child.never:
            if known.types:
                text = f"the writer may write '{name}', the reader allows no such property: keep it or open the reader"
                yield Incompatibility(_step(name), "property_removed", text)
            continue
        problems = proof.problems(known, child)
        if problems and name in node.properties and not facts.declares(name):
            text = (
                f"the reader describes '{name}', the writer does not and may write another value there: state it "
                "in the writer's schema (backward: the old one) or leave additionalProperties out"
            )
            yield Incompatibility(_step(name), "property_added_to_open", text)
        else:
            yield from below(_step(name), problems)


def _other_property_problems(proof: Proof, facts: Facts, node: Node) -> Problems:
    """Properties that neither side names."""
    for pattern, child in node.patterns.items():
        known = facts.at_others(_sure_at(facts, pattern))
        yield from below(f".<{pattern}>", proof.problems(known, child))
    if node.additional is not None:
        yield from _further_problems(proof, facts, node, node.additional)


def _sure_at(facts: Facts, pattern: str) -> Iterator[Node]:
    """What holds for every unnamed property whose name matches a pattern of the reader."""
    for known in facts.atoms:
        if pattern in known.patterns:
            yield known.patterns[pattern]
        elif not known.patterns and known.additional is not None:
            yield known.additional


def _further_problems(proof: Proof, facts: Facts, node: Node, further: Node) -> Problems:
    """Properties that match none of the reader's patterns either."""
    sure: list[Node] = []
    unsure: list[Node] = []
    for known in facts.atoms:
        if known.patterns.keys() <= node.patterns.keys():
            sure.extend([] if known.additional is None else [known.additional])
        else:
            unsure.append(known)
    cases = [sure]
    if len(unsure) == 1:
        known = unsure[0]
        own = [child for pattern, child in known.patterns.items() if pattern not in node.patterns]
        rest = [] if known.additional is None else [known.additional]
        cases = [[*sure, child] for child in own] + [[*sure, *rest]]
    for case in map(facts.at_others, cases):
        if not further.never:
            yield from below(".*", proof.problems(case, further))
        elif case.types:
            text = "the writer may write further properties, the reader allows none: leave the reader open"
            yield Incompatibility(".*", "properties_closed", text)


def _count_problems(facts: Facts, node: Node) -> Problems:
    least = max(facts.least("properties_min"), len(facts.required))
    if node.properties_min > least:
        yield narrowed("minProperties", str(least), str(node.properties_min))
    if node.properties_max is not None and facts.properties_end > node.properties_max:
        known = "none" if facts.properties_end == math.inf else str(facts.properties_end)
        yield narrowed("maxProperties", known, str(node.properties_max))


def _name_problems(proof: Proof, facts: Facts, node: Node) -> Problems:
    if node.names is None:
        return
    names = [known.names for known in facts.atoms if known.names is not None]
    open_to = [
        known
        for known in facts.atoms
        if known.additional is None or not known.additional.never or known.patterns
    ]
    if len(open_to) == len(facts.atoms):
        yield from below(".<name>", proof.problems(Facts([ONLY_TEXT, *names]), node.names))
        return
    for name in facts.names:
        if facts.at_property(name).types and not node.names.accepts(name):
            text = f"the writer may write '{name}', a name the reader does not allow"
            yield Incompatibility(_step(name), "property_name", text)


def _dependency_problems(proof: Proof, facts: Facts, node: Node) -> Problems:
    for name, needed in node.dependent_required.items():
        granted = facts.required.union(*(known.dependent_required.get(name, ()) for known in facts.atoms))
        if needed - granted and facts.at_property(name).types:
            text = (
                f"the reader requires {sorted(needed - granted)} beside '{name}', the writer may leave it out"
            )
            yield Incompatibility(_step(name), "property_required", text)
    for name, child in node.dependent_schemas:
        if facts.at_property(name).types:
            given = [other for known in facts.atoms for key, other in known.dependent_schemas if key == name]
            yield from proof.problems(facts.plus(_required(name), *given), child)


def _unevaluated_problems(proof: Proof, facts: Facts, node: Node, names: list[str]) -> Problems:
    """Asks it of all properties that no part of the reader is sure to evaluate: more than it means, never less."""
    parts = unfolded([node])
    if any(part.additional is not None for part in parts):
        return
    assert node.unevaluated_properties is not None
    evaluated = {name for part in parts for name in part.properties}
    patterns = {pattern: child for part in parts for pattern, child in part.patterns.items()}
    stricter = Node(
        home=None,
        evaluator=node.evaluator,
        properties=dict.fromkeys(evaluated, ANYTHING),
        patterns=dict.fromkeys(patterns, ANYTHING),
        additional=node.unevaluated_properties,
    )
    for name in names:
        yield from _property_problems(proof, facts, stricter, name)
    yield from _further_problems(proof, facts, stricter, node.unevaluated_properties)


def _required(name: str) -> Node:
    return Node(required=frozenset({name}))


def _step(name: str) -> str:
    return f".{name}"
