"""What the rules of containment share: the comparison they are part of, and paths of what they find."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.json_facts import Facts
from pydanube.schemas.json_types import Node


class Proof(Protocol):
    """The comparison; see `json_compatibility.py`."""

    def problems(self, facts: Facts, node: Node) -> list[Incompatibility]:
        """Why a value with these facts may not fit the node."""

    def holds(self, facts: Facts, node: Node) -> bool:
        """Whether every such value fits."""

    def same(self, one: Node, other: Node, /) -> bool:
        """Whether two nodes are known to accept the same values."""


def below(place: str, problems: list[Incompatibility]) -> Iterator[Incompatibility]:
    """Problems found below a value, with the step that leads there."""
    for problem in problems:
        yield replace(problem, path=place + problem.path)


def narrowed(keyword: str, known: str, wanted: str) -> Incompatibility:
    """The problem with a limit that was made tighter."""
    text = f"the reader's {keyword} is {wanted}, the writer's {known}: do not narrow it"
    return Incompatibility("", "range_narrowed", text)
