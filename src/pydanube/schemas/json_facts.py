"""What is known of a value that some nodes accept: the nodes taken together, and what follows from them."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cached_property
from typing import TypeAlias

from pydanube.schemas.documents import Json
from pydanube.schemas.json_declared import mentioned, only
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
# Stands for more nodes than are followed: something is said of additional properties, at every depth.
UNKNOWN = Node()
UNKNOWN.additional = UNKNOWN.rest = UNKNOWN
MAYBE_MAX = 128
ONLY_TEXT = Node(types=frozenset({STRING}))


class Facts:
    """A conjunction of nodes (`all_of` unfolded) and the cases not yet told apart.

    Everything derived here is true of every value all nodes accept, if it holds declared properties only where
    `json_declared.py` assumes that. It may be weaker than the truth, never stronger: that is what makes
    "compatible" safe to say.

    `written` are the nodes of the writer, `beside` what the comparison adds to them, `maybe` those of the
    writer's that look at the same value and need not hold.
    """

    def __init__(
        self,
        written: Iterable[Node],
        *,
        beside: Iterable[Node] = (),
        maybe: Iterable[Node] = (),
        closed: frozenset[CaseId] = frozenset(),
    ) -> None:
        self.written = unfolded(written)
        self.closed = closed
        self._given = _at_most(maybe)
        self.maybe = _also_looking(self.written, self._given, closed)
        self.mentioned = mentioned(self.written, self.maybe)
        self._added = tuple(beside)
        limit = None if self.mentioned is None else only(self.mentioned, self.written, self.maybe)
        known = unfolded((*self.written, *self._added)) if self._added else self.written
        self.atoms = known if limit is None else (*known, limit)
        self.cases: dict[CaseId, tuple[Row, ...]] = {
            (id(node), number): rows
            for node in known
            for number, rows in enumerate(node.alternatives)
            if (id(node), number) not in closed
        }
        self.key = (frozenset(map(id, known)), frozenset(map(id, self.maybe)), self.mentioned, closed)

    def plus(self, *nodes: Node) -> "Facts":
        """These facts and more."""
        return Facts(self.written, beside=(*self._added, *nodes), maybe=self._given, closed=self.closed)

    def in_case(self, case: CaseId, row: Row) -> "Facts":
        """These facts when one case is known to hold."""
        closed = self.closed | {case}
        if any(id(node) == case[0] for node in self.written):
            return Facts((*self.written, *row), beside=self._added, maybe=self._given, closed=closed)
        return Facts(self.written, beside=(*self._added, *row), maybe=self._given, closed=closed)

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

    def declares(self, name: str) -> bool:
        """Whether the writer's schema describes a property by its name."""
        return any(name in node.properties for node in self.written)

    def taken_as_absent(self, name: str) -> bool:
        """Whether the writer is taken not to write a property, for its schema says nothing of it."""
        return self.mentioned is not None and name not in self.mentioned

    def at_property(self, name: str) -> "Facts":
        """What is known of the value of a property."""
        return self._below(
            lambda node: node.at_property(name),
            lambda node: [*node.at_property(name), node.unevaluated_properties],
        )

    def at_item(self, index: int) -> "Facts":
        """What is known of an item; an index beyond every prefix stands for all further ones."""
        return self._below(
            lambda node: [] if (item := node.at_item(index)) is None else [item],
            lambda node: [*node.prefix[index:], node.rest, node.contains, node.unevaluated_items],
        )

    def at_others(self, sure: Iterable[Node]) -> "Facts":
        """What is known of a property no schema names, by the nodes that are sure to look at it."""
        chosen = dict.fromkeys(sure)
        written = set(self.written)
        return self._below(
            lambda node: [child for child in (*node.patterns.values(), node.additional) if child in chosen],
            lambda node: [
                *(() if node in written else node.properties.values()),
                *node.patterns.values(),
                node.additional,
                node.unevaluated_properties,
            ],
        )

    def _below(
        self, known: Callable[[Node], list[Node]], possible: Callable[[Node], list[Node | None]]
    ) -> "Facts":
        return Facts(
            (child for node in self.written for child in known(node)),
            beside=(child for node in self._beside for child in known(node)),
            maybe=(
                child
                for node in (*self.written, *self.maybe)
                for child in possible(node)
                if child is not None
            ),
        )

    @cached_property
    def _beside(self) -> list[Node]:
        written = set(self.written)
        return [node for node in self.atoms if node not in written]

    @cached_property
    def prefix_length(self) -> int:
        return max((len(node.prefix) for node in self.atoms), default=0)


def unfolded(nodes: Iterable[Node]) -> Row:
    """Nodes and the parts of their `all_of`, each once."""
    found: dict[Node, None] = {}
    pending = list(nodes)[::-1]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending.extend(reversed(node.all_of))
    return tuple(found)


def _also_looking(written: Row, given: Row, closed: frozenset[CaseId]) -> Row:
    """The nodes that look at the same value as those written, or are given, and need not hold."""
    known = set(written)
    found: dict[Node, None] = {}
    pending = [*given, *(node for one in written for node in _undecided(one, closed))]
    while pending:
        node = pending.pop()
        if node not in known and node not in found:
            found[node] = None
            if len(found) > MAYBE_MAX:
                return (UNKNOWN,)
            pending.extend(node.in_place())
    return tuple(found)


def _at_most(nodes: Iterable[Node]) -> Row:
    found: dict[Node, None] = {}
    for node in nodes:
        found[node] = None
        if len(found) > MAYBE_MAX:
            return (UNKNOWN,)
    return tuple(found)


def _undecided(node: Node, closed: frozenset[CaseId]) -> list[Node]:
    """The parts of a node that may hold; of `anyOf` further branches may when one is known to."""
    if not (node.any_of or node.one_of or node.if_ or node.not_ or node.dependent_schemas):
        return []
    parts = node.in_place()
    for number, rows in enumerate(node.alternatives):
        if (id(node), number) in closed and rows[0] != (node.any_of or ())[:1]:
            decided = {part for row in rows for part in row}
            parts = [part for part in parts if part not in decided]
    return parts


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
