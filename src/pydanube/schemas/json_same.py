"""Whether two nodes are the same schema, spelled the same way, references followed."""

from dataclasses import fields

from pydanube.schemas.documents import same_json
from pydanube.schemas.json_types import Node

PAIRS_MAX = 2_000
FIELDS = tuple(field.name for field in fields(Node) if field.name not in ("home", "evaluator"))


def same(one: Node, other: Node) -> bool:
    """True only if both accept the same values; a pair met again below itself is taken to be equal."""
    met: set[tuple[int, int]] = set()
    pending = [(one, other)]
    while pending:
        first, second = pending.pop()
        if first is second or (id(first), id(second)) in met:
            continue
        if len(met) >= PAIRS_MAX:
            return False
        met.add((id(first), id(second)))
        for name in FIELDS:
            if not _same_field(getattr(first, name), getattr(second, name), pending):
                return False
    return True


def _same_field(one: object, other: object, pending: list[tuple[Node, Node]]) -> bool:
    """Compare values of one keyword; nodes in them are compared later."""
    if isinstance(one, Node) and isinstance(other, Node):
        pending.append((one, other))
        return True
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(
            _same_field(*pair, pending) for pair in zip(one, other, strict=True)
        )
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_field(one[key], other[key], pending) for key in one)
    return type(one) is type(other) and same_json(one, other)
