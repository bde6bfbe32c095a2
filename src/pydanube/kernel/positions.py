"""Where in a topic to begin or to end."""

from dataclasses import dataclass
from enum import IntEnum


class PositionKind(IntEnum):
    """How a place is named; numbered as on the wire."""

    CURSOR = 0
    """Where the subscription stands; one that is new begins at the end."""
    EARLIEST = 1
    LATEST = 2
    OFFSET = 3
    TIMESTAMP = 4
    """The first message appended at or after that moment, Unix milliseconds."""


@dataclass(frozen=True, slots=True)
class Position:
    kind: PositionKind
    value: int = 0


CURSOR = Position(PositionKind.CURSOR)
EARLIEST = Position(PositionKind.EARLIEST)
LATEST = Position(PositionKind.LATEST)
