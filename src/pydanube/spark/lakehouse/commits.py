"""What a commit to a table says about itself: which offsets of which topic it holds.

It is written with the rows, in the same atomic step, as properties of an Iceberg snapshot or as the metadata of a Delta
commit. Nothing else remembers how far a sync has come.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pydanube.kernel.errors import Corrupt, ErrorCode

PREFIX: Final = "danube."
TOPIC: Final = "danube.topic"

Position = Mapping[str, int]
"""The next offset of each part, by its name."""


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets from `start` to `end` of each part, the end not included."""

    topic: str
    number: int
    """Grows by one from commit to commit: whoever makes the same one a second time is too late."""
    attempt: str
    """Whose it is, when two tried."""
    start: Position
    end: Position
    quarantined: int = 0
    epoch: str = "0"
    """What `number` counts in."""
    lost: int = 0
    """Messages between the last commit and this one that retention had deleted; skipped because that was allowed."""

    @property
    def messages(self) -> int:
        """Offsets in it; messages that were removed and those in quarantine are counted."""
        return sum(end - self.start.get(name, end) for name, end in self.end.items())

    def to_properties(self) -> dict[str, str]:
        return {
            TOPIC: self.topic,
            "danube.commit": str(self.number),
            "danube.attempt": self.attempt,
            "danube.epoch": self.epoch,
            "danube.start-offsets": json.dumps(self.start, sort_keys=True),
            "danube.end-offsets": json.dumps(self.end, sort_keys=True),
            "danube.quarantined": str(self.quarantined),
            "danube.lost": str(self.lost),
        }

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> "Commit | None":
        """None if the commit was not made by a sync.

        Raises:
            Corrupt: it was, and says nonsense.
        """
        if "danube.end-offsets" not in properties or "danube.commit" not in properties:
            return None
        try:
            return cls(
                properties[TOPIC],
                int(properties["danube.commit"]),
                properties["danube.attempt"],
                parse_position(properties["danube.start-offsets"]),
                parse_position(properties["danube.end-offsets"]),
                int(properties.get("danube.quarantined", "0")),
                properties.get("danube.epoch", "0"),
                int(properties.get("danube.lost", "0")),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise Corrupt(
                f"a commit of the table has properties danube.* that no sync wrote ({error!r}): "
                "roll the table back to a commit before it, or sync into another table",
                ErrorCode.METADATA_CORRUPT,
            ) from error


@dataclass(frozen=True, slots=True)
class RecordedCommit:
    """A commit as the table's log has it."""

    commit: Commit
    version: str
    """Snapshot id, or version of the Delta table."""
    committed_ms: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a table is."""

    position: Position = field(default_factory=dict)
    """Empty if nothing was ever synced."""
    number: int = 0
    """Of the last commit."""
    epoch: str = "0"
    attempt: str | None = None


def parse_position(text: str) -> dict[str, int]:
    """Raises ValueError."""
    given = json.loads(text)
    if not isinstance(given, dict) or not all(
        isinstance(offset, int) and offset >= 0 for offset in given.values()
    ):
        raise ValueError(f"{text!r} is no position")
    return given


def furthest(*positions: Position) -> dict[str, int]:
    """For each part the highest offset that any of them has."""
    merged: dict[str, int] = {}
    for position in positions:
        for name, offset in position.items():
            merged[name] = max(offset, merged.get(name, 0))
    return merged
