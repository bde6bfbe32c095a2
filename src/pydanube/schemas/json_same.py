"""Whether two nodes are the same schema, spelled the same way, references followed."""

from dataclasses import fields

from pydanube.schemas.documents import same_json
from pydanube.schemas.json_types import Node

# Pairs of nodes looked at for one question, and for all questions of one comparison.
PAIRS_MAX = 1_000
PAIRS_IN_ALL_MAX = 50_000

FIELDS = tuple(field.name for field in fields(Node) if field.name not in ("home", "evaluator"))


class Sameness:
    """Answers for one comparison, with a memory: the same parts are met again and again."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[Node, Node], bool] = {}
        self._left = PAIRS_IN_ALL_MAX

    def found(self, one: Node, other: Node) -> bool:
        """True only if both accept the same values; False also when the steps are spent."""
        # Pairs assumed equal until shown otherwise, each with the pair it was met in.
        met: dict[tuple[Node, Node], tuple[Node, Node] | None] = {(one, other): None}
        pending = [(one, other)]
        while pending:
            pair = pending.pop()
            known = self._verdicts.get(pair, pair[0] is pair[1] or None)
            if known:
                continue
            self._left -= 1
            if self._left < 0 or len(met) > PAIRS_MAX:
                return False
            below: list[tuple[Node, Node]] = []
            if known is False or not _same_fields(*pair, below):
                self._differ(pair, met)
                return False
            for child in below:
                if child not in met:
                    met[child] = pair
                    pending.append(child)
        self._verdicts.update(dict.fromkeys(met, True))
        return True

    def _differ(
        self, pair: tuple[Node, Node] | None, met: dict[tuple[Node, Node], tuple[Node, Node] | None]
    ) -> None:
        """What differs in a part differs itself, up to the pair that was asked about."""
        while pair is not None:
            self._verdicts[pair] = False
            pair = met[pair]


def _same_fields(one: Node, other: Node, below: list[tuple[Node, Node]]) -> bool:
    return all(_same(getattr(one, name), getattr(other, name), below) for name in FIELDS)


def _same(one: object, other: object, below: list[tuple[Node, Node]]) -> bool:
    """Compare values of one keyword; nodes in them are left for later."""
    if one is other:
        return True
    if isinstance(one, Node) and isinstance(other, Node):
        below.append((one, other))
        return True
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(_same(*pair, below) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key], below) for key in one)
    return type(one) is type(other) and same_json(one, other)
