"""How often a JSON Schema makes the validator look at one place of a payload.

A dozen lines of nested `allOf` double the work at each step, and a reference back to the top repeats that at
every level of the payload: 2^30 checks for a few bytes. The validator has no clock, so such a schema is
refused before it is used. The count is exact but for patterns, which are taken to match every name.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from pydanube.schemas.json_types import Node
from pydanube.schemas.limits import refuse

CHECKS_PER_PLACE_MAX = 2_000
# Kinds of places (sets of nodes that look at one) and steps to find them, before we stop looking.
PLACES_MAX = 20_000
STEPS_MAX = 400_000
CHAIN_MAX = 200


def checks_per_place(root: Node) -> int:
    """The most nodes that can look at one place of any payload; refuses what is too much."""
    return _Count().at_most(root)


class _Count:
    def __init__(self) -> None:
        self._in_place: dict[Node, Counter[Node]] = {}
        self._open: list[Node] = []
        self._steps = 0

    def at_most(self, root: Node) -> int:
        most = 0
        pending = [self._everything(Counter((root,)))]
        met = {frozenset(pending[0].items())}
        while pending:
            place = pending.pop()
            most = max(most, place.total())
            for looking in _places_below(place):
                self._spend(len(place))
                below = self._everything(looking)
                key = frozenset(below.items())
                if below and key not in met:
                    met.add(key)
                    pending.append(below)
            if len(met) > PLACES_MAX:
                raise _too_much()
        return most

    def _everything(self, looking: Counter[Node]) -> Counter[Node]:
        """The nodes given, and those they ask about the same place."""
        found: Counter[Node] = Counter()
        for node, times in looking.items():
            for asked, count in self._asked(node).items():
                found[asked] += count * times
        if found.total() > CHECKS_PER_PLACE_MAX:
            raise refuse(
                f"more than {CHECKS_PER_PLACE_MAX} subschemas look at one place of a payload: use fewer of "
                "allOf, anyOf, oneOf and $ref"
            )
        return found

    def _asked(self, node: Node) -> Counter[Node]:
        known = self._in_place.get(node)
        if known is None:
            if node in self._open:
                raise refuse("a subschema refers to itself without looking deeper into the payload")
            if len(self._open) > CHAIN_MAX:
                raise refuse(
                    f"more than {CHAIN_MAX} subschemas and references follow each other at one place"
                )
            self._open.append(node)
            known = Counter((node,))
            known.update(self._everything(Counter(node.in_place())))
            self._spend(len(known))
            self._open.pop()
            self._in_place[node] = known
        return known

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > STEPS_MAX:
            raise _too_much()


def _too_much() -> Exception:
    return refuse("the subschemas combine in too many ways: use fewer of allOf, anyOf, oneOf and $ref")


def _places_below(place: Counter[Node]) -> Iterator[Counter[Node]]:
    """Who looks at each named property, at any other, at each item, at the name of a property."""
    names: list[str | None] = [*dict.fromkeys(name for node in place for name in node.properties), None]
    for name in names:
        yield _sum(place, partial(_at_property, name))
    for index in range(max((len(node.prefix) for node in place), default=0) + 1):
        yield _sum(place, partial(_at_item, index))
    yield _sum(place, lambda node: [node.names])


def _sum(place: Counter[Node], below: Callable[[Node], list[Node | None]]) -> Counter[Node]:
    found: Counter[Node] = Counter()
    for node, times in place.items():
        for child in below(node):
            if child is not None:
                found[child] += times
    return found


def _at_property(name: str | None, node: Node) -> list[Node | None]:
    named = node.properties.get(name) if name is not None else None
    return [named or node.additional, *node.patterns.values(), node.unevaluated_properties]


def _at_item(index: int, node: Node) -> list[Node | None]:
    return [node.at_item(index), node.contains, node.unevaluated_items]
