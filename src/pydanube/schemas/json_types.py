"""A JSON Schema with its draft's spelling removed: one node per subschema, every reference resolved."""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Protocol

from pydanube.schemas.documents import Json

# How a value may look. Drafts disagree whether 1.0 is an integer, so whole numbers come in two spellings.
NULL: Final = "null"
BOOLEAN: Final = "boolean"
OBJECT: Final = "object"
ARRAY: Final = "array"
STRING: Final = "string"
INTEGER: Final = "integer"
WHOLE_FLOAT: Final = "integer written with a fraction"
FRACTION: Final = "number"

EVERY_TYPE: Final = frozenset({NULL, BOOLEAN, OBJECT, ARRAY, STRING, INTEGER, WHOLE_FLOAT, FRACTION})
WHOLE: Final = frozenset({INTEGER, WHOLE_FLOAT})
NUMERIC: Final = WHOLE | {FRACTION}


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of numbers."""

    value: Fraction
    exclusive: bool


@dataclass(frozen=True, slots=True)
class Home:
    """Where a node stands: the document (empty for the definition itself) and the pointer into it."""

    document: str
    pointer: str


class Evaluator(Protocol):
    """Tries single values on a schema."""

    def accepts(self, home: Home, value: Json) -> bool:
        """Whether the value fits the subschema."""

    def matches(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found in the text."""


# Compared by identity and never spelled out: the graph may be cyclic.
@dataclass(slots=True, eq=False, repr=False)
class Node:
    """One subschema: all that is set must hold for a value. What is not set constrains nothing.

    A `$ref` is one more element of `all_of`. `alternatives` are disjunctions of conjunctions: for each of
    them, one row of nodes holds (from `anyOf`, `oneOf` and `if`); they say less than `one_of` and `if_`.
    """

    home: Home | None = None
    evaluator: Evaluator | None = None
    never: bool = False
    types: frozenset[str] = EVERY_TYPE
    values: tuple[Json, ...] | None = None

    lower: Bound | None = None
    upper: Bound | None = None
    multiple_of: Fraction | None = None

    length_min: int = 0
    length_max: int | None = None
    pattern: str | None = None
    content: tuple[tuple[str, str], ...] = ()

    prefix: tuple["Node", ...] = ()
    rest: "Node | None" = None
    items_min: int = 0
    items_max: int | None = None
    unique: bool = False
    contains: "Node | None" = None
    contains_min: int = 1
    contains_max: int | None = None
    unevaluated_items: "Node | None" = None

    properties: dict[str, "Node"] = field(default_factory=dict)
    patterns: dict[str, "Node"] = field(default_factory=dict)
    additional: "Node | None" = None
    names: "Node | None" = None
    required: frozenset[str] = frozenset()
    properties_min: int = 0
    properties_max: int | None = None
    dependent_required: dict[str, frozenset[str]] = field(default_factory=dict)
    dependent_schemas: tuple[tuple[str, "Node"], ...] = ()
    unevaluated_properties: "Node | None" = None

    all_of: tuple["Node", ...] = ()
    any_of: tuple["Node", ...] | None = None
    one_of: tuple["Node", ...] | None = None
    not_: "Node | None" = None
    if_: "Node | None" = None
    then: "Node | None" = None
    else_: "Node | None" = None

    @property
    def alternatives(self) -> list[tuple[tuple["Node", ...], ...]]:
        """What is known of a value of this node by cases."""
        found: list[tuple[tuple[Node, ...], ...]] = [
            tuple((branch,) for branch in branches) for branches in (self.any_of, self.one_of) if branches
        ]
        if self.if_ is not None:
            holds = (self.if_,) if self.then is None else (self.if_, self.then)
            found.append((holds, () if self.else_ is None else (self.else_,)))
        return found

    def in_place(self) -> list["Node"]:
        """The nodes that look at the same place of a payload as this one."""
        alone = (self.not_, self.if_, self.then, self.else_)
        return [
            *self.all_of,
            *(self.any_of or ()),
            *(self.one_of or ()),
            *(node for node in alone if node is not None),
            *(node for _, node in self.dependent_schemas),
        ]

    def accepts(self, value: Json) -> bool:
        """Whether a value fits; a node made up for a comparison does not object."""
        return self.home is None or self.evaluator is None or self.evaluator.accepts(self.home, value)

    def matching(self, name: str) -> list[str]:
        """The patterns for properties that are found in a name."""
        return [
            pattern for pattern in self.patterns if self.evaluator and self.evaluator.matches(pattern, name)
        ]

    def at_property(self, name: str) -> list["Node"]:
        """The nodes for the value of a property."""
        found = [self.patterns[pattern] for pattern in self.matching(name)]
        if name in self.properties:
            found.append(self.properties[name])
        if not found and self.additional is not None:
            found.append(self.additional)
        return found

    def at_item(self, index: int) -> "Node | None":
        """The node for an item; an index beyond every prefix stands for all further items."""
        return self.prefix[index] if index < len(self.prefix) else self.rest


def spell_types(types: frozenset[str]) -> str:
    """Types as a schema would name them."""
    shown = set(types)
    if types >= NUMERIC:
        shown -= WHOLE
    elif types >= WHOLE:
        shown -= {WHOLE_FLOAT}
    return " or ".join(sorted(shown)) or "nothing"
