"""Where to begin, to end or to seek to."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from pydanube.kernel.errors import Rejected
from pydanube.protocol import native_pb2 as pb

OFFSET_MAX: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a topic; in each partition on its own, if the topic has partitions."""

    kind: Literal["cursor", "earliest", "latest", "offset", "timestamp"]
    value: int = 0

    @classmethod
    def cursor(cls) -> "Position":
        """Where the subscription stands; a new one begins at the end."""
        return cls("cursor")

    @classmethod
    def earliest(cls) -> "Position":
        return cls("earliest")

    @classmethod
    def latest(cls) -> "Position":
        return cls("latest")

    @classmethod
    def offset(cls, offset: int) -> "Position":
        if not 0 <= offset <= OFFSET_MAX:
            raise Rejected(f"invalid offset {offset}: expected 0 to {OFFSET_MAX}")
        return cls("offset", offset)

    @classmethod
    def timestamp(cls, moment: datetime | int) -> "Position":
        """The first message appended at or after the moment: a datetime with a time zone, or Unix milliseconds."""
        return cls("timestamp", unix_ms(moment, what="timestamp"))

    def encode(self) -> pb.Position:
        return pb.Position(kind=_KINDS[self.kind], value=self.value)


AnyPosition = Position | Literal["cursor", "earliest", "latest"]

_KINDS: Final = {
    "cursor": pb.Position.CURSOR,
    "earliest": pb.Position.EARLIEST,
    "latest": pb.Position.LATEST,
    "offset": pb.Position.OFFSET,
    "timestamp": pb.Position.TIMESTAMP,
}


def position_of(position: AnyPosition, *, what: str) -> Position:
    """Accept a Position or one of the words that need no number."""
    if isinstance(position, Position):
        return position
    if position not in ("cursor", "earliest", "latest"):
        raise Rejected(f"invalid {what} {position!r}: expected 'earliest', 'latest', 'cursor' or a Position")
    return Position(position)


def unix_ms(moment: datetime | int, *, what: str) -> int:
    """Unix milliseconds of a datetime that says its time zone; an integer is taken as such milliseconds."""
    if isinstance(moment, datetime):
        if moment.tzinfo is None:
            raise Rejected(f"invalid {what} {moment}: give it a time zone, e.g. datetime.now(UTC)")
        moment = round(moment.timestamp() * 1000)
    if not 0 <= moment <= OFFSET_MAX:
        raise Rejected(f"invalid {what} {moment}: expected Unix milliseconds")
    return moment
