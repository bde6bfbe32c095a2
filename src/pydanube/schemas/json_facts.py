"""What is known of a value that some nodes accept: the nodes taken together, and what follows from them."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from pydanube.schemas.documents import Json
from pydanube.schemas.json_types import (
    ARRAY,
    BOOLEAN,
    EVERY_TYPE,
    FRACTION,
    INTEGER,
    NULL,
    NUMERIC,
    OBJECT,
    STRING,
    WHOLE,
    WHOLE_FLOAT,
    Bound,
    Node,
)

Row: TypeAlias = tuple[Node, ...]
CaseId: TypeAlias = tuple[int, int]

# Whole numbers stay together: hardly a schema tells their spellings apart.
ONLY = [Node(types=kinds) for kinds in (*(frozenset({kind}) for kind in sorted(EVERY_TYPE - WHOLE)), WHOLE)]
ONLY_TEXT = Node(types=frozenset({STRING}))


class Facts:
    """A conjunction of nodes (`all_of` unfolded) and the cases not yet told apart.

    Everything derived here is true of every value all nodes accept. It may be weaker than the truth, never
    stronger: that is what makes "compatible" safe to say.
    """

    def __init__(self, nodes: Iterable[Node], *, closed: frozenset[CaseId] = frozenset()) -> None:
        atoms: dict[Node, None] = {}
        pending = list(nodes)[::-1]
        while pending:
            node = pending.pop()
            if node not in atoms:
                atoms[node] = None
                pending.extend(reversed(node.all_of))
        self.atoms = tuple(atoms)
        self.closed = closed
        self.cases: dict[CaseId, tuple[Row, ...]] = {
            (id(node), number): rows
            for node in self.atoms
            for number, rows in enumerate(node.alternatives)
            if (id(node), number) not in closed
        }
        self.key = (frozenset(map(id, self.atoms)), closed)

    def plus(self, *nodes: Node) -> "Facts":
        """These facts and more."""
        return Facts((*self.atoms, *nodes), closed=self.closed)

    def in_case(self, case: CaseId, row: Row) -> "Facts":
        """These facts when one case is known to hold."""
        return Facts((*self.atoms, *row), closed=self.closed | {case})

    @cached_property
    def types(self) -> frozenset[str]:
        if any(node.never for node in self.atoms):
            return frozenset()
        return EVERY_TYPE.intersection(*(node.types for node in self.atoms))

    @cached_property
    def values(self) -> list[Json] | None:
        """All possible values, if there is an end of them."""
        lists = [node.values for node in self.atoms if node.values is not None]
        if lists:
            shortest = min(lists, key=len)
        elif self.types <= {NULL, BOOLEAN}:
            shortest = (None, True, False)
        else:
            return None
        return [spelled for value in shortest for spelled in spellings(value) if self._possible(spelled)]

    def _possible(self, value: Json) -> bool:
        return _type_of(value) in self.types and all(node.accepts(value) for node in self.atoms)

    @cached_property
    def lower(self) -> Bound | None:
        bounds = [node.lower for node in self.atoms if node.lower]
        if self._whole:
            bounds = list(map(_whole_lower, bounds))
        return max(bounds, key=lambda bound: (bound.value, bound.exclusive), default=None)

    @cached_property
    def upper(self) -> Bound | None:
        bounds = [node.upper for node in self.atoms if node.upper]
        if self._whole:
            bounds = list(map(_whole_upper, bounds))
        return min(bounds, key=lambda bound: (bound.value, not bound.exclusive), default=None)

    @property
    def _whole(self) -> bool:
        return self.types & NUMERIC <= WHOLE

    @cached_property
    def required(self) -> frozenset[str]:
        return frozenset().union(*(node.required for node in self.atoms))

    @cached_property
    def names(self) -> list[str]:
        """The properties any node mentions."""
        found = {name: None for node in self.atoms for name in node.properties}
        return [*found, *sorted(self.required - found.keys())]

    def most(self, name: str) -> int | None:
        """The smallest of the limits of one kind, such as `length_max`."""
        limits = [getattr(node, name) for node in self.atoms]
        return min((limit for limit in limits if limit is not None), default=None)

    def least(self, name: str) -> int:
        """The largest of the limits of one kind, such as `length_min`."""
        return max((getattr(node, name) for node in self.atoms), default=0)

    @cached_property
    def items_end(self) -> float:
        """An array is at most this long."""
        ends: list[float] = [math.inf if node.items_max is None else node.items_max for node in self.atoms]
        for node in self.atoms:
            never = [index for index, item in enumerate((*node.prefix, node.rest)) if item and item.never]
            ends.extend(never[:1])
        return min(ends, default=math.inf)

    @cached_property
    def properties_end(self) -> float:
        """An object has at most this many properties."""
        ends: list[float] = [
            math.inf if node.properties_max is None else node.properties_max for node in self.atoms
        ]
        ends.extend(
            sum(not child.never for child in node.properties.values())
            for node in self.atoms
            if node.additional is not None and node.additional.never and not node.patterns
        )
        return min(ends, default=math.inf)

    def at_property(self, name: str) -> "Facts":
        """What is known of the value of a property."""
        return Facts(child for node in self.atoms for child in node.at_property(name))

    def at_item(self, index: int) -> "Facts":
        """What is known of an item; an index beyond every prefix stands for all further ones."""
        return Facts(item for node in self.atoms if (item := node.at_item(index)) is not None)

    @cached_property
    def prefix_length(self) -> int:
        return max((len(node.prefix) for node in self.atoms), default=0)


def spellings(value: Json) -> list[Json]:
    """The values equal to a listed one: 1 in a list lets 1.0 through, which draft 4 takes for no integer."""
    found = [value, _respelled(value, _as_float), _respelled(value, _as_integer)]
    return [
        one for number, one in enumerate(found) if all(repr(one) != repr(other) for other in found[:number])
    ]


def _respelled(value: Json, respell: Callable[[Json], Json]) -> Json:
    if isinstance(value, list):
        return [_respelled(item, respell) for item in value]
    if isinstance(value, dict):
        return {key: _respelled(item, respell) for key, item in value.items()}
    return respell(value)


def _as_float(value: Json) -> Json:
    return float(value) if type(value) is int and abs(value) < 2**53 else value


def _as_integer(value: Json) -> Json:
    return int(value) if type(value) is float and value.is_integer() else value


def _type_of(value: Json) -> str:
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case float():
            return WHOLE_FLOAT if value.is_integer() else FRACTION
        case str():
            return STRING
        case list():
            return ARRAY
        case _:
            return OBJECT


def _whole_lower(bound: Bound) -> Bound:
    """For whole numbers "more than 4" is "5 or more"."""
    value = math.floor(bound.value)
    return Bound(Fraction(value + (value != bound.value or bound.exclusive)), exclusive=False)


def _whole_upper(bound: Bound) -> Bound:
    """For whole numbers "less than 4" is "3 or less"."""
    value = math.ceil(bound.value)
    return Bound(Fraction(value - (value != bound.value or bound.exclusive)), exclusive=False)
