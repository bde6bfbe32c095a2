"""What a run does: the options of the command, checked, and how they are shared out over processes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from typing import Final, Literal, TypeVar

from pydanube.client.address import Address
from pydanube.kernel.errors import Rejected

STAMP_BYTES: Final = 8
"""A sequence number or a time of sending at the beginning of a payload."""
SIZE_MAX: Final = 4 * 1024 * 1024 - 8 * 1024
BATCH_BYTES_MAX: Final = 2 * 1024 * 1024
_ROW_BYTES: Final = 32
"""What a message adds to a batch beside its payload, generously."""
COUNT_MAX: Final = 1_000_000_000
VERIFIED_COUNT_MAX: Final = 200_000_000
"""Of messages read in one run: whether each came is remembered, a byte each."""
PENDING_BYTES: Final = 16 * 1024 * 1024
_SECRET: Final = ("token", "cert_key")

Item = TypeVar("Item")


class Protocol(Enum):
    NATIVE = "native"
    GRPC = "grpc"


class Send(Enum):
    """How messages are handed to the client: one call each, or lists of `--batch`."""

    NOWAIT = "nowait"
    MANY = "many"


class Read(Enum):
    """How messages are taken from the client: Arrow batches, an iteration, or one receive and ack each."""

    BATCHES = "batches"
    MESSAGES = "messages"
    ROWS = "rows"


@dataclass(frozen=True, slots=True)
class Stream:
    """One producer on one topic, and how much it sends."""

    topic: str
    producer: str
    messages: int
    warmup: int


@dataclass(frozen=True, slots=True)
class Group:
    """One subscription of one topic, and how much it reads."""

    topic: str
    subscription: str
    messages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One stage of a run; numbers are totals of all processes unless said otherwise."""

    broker: Address = Address("127.0.0.1", 6650, tls=False)  # noqa: RUF009 - frozen
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None
    protocol: Protocol = Protocol.NATIVE
    token: str | None = None
    reliable: bool = True
    run: str
    """Part of every name this run makes, so that runs do not meet."""
    topic: str | None = None
    topics: int = 1
    partitions: int | None = None
    size: int = 128
    count: int = 100_000
    warmup: int = 0
    rate: float = 0.0
    """Messages a second; 0 is as fast as possible."""
    producers: int = 1
    subscriptions: int = 1
    """Of each topic; every one of them reads everything."""
    consumers: int = 1
    """Of each subscription."""
    connections: int = 1
    processes: int = 1
    batch: int = 1000
    linger_ms: float = 5.0
    compression: Literal["lz4", "zstd"] | None = None
    pending_bytes: int = PENDING_BYTES
    """Sent and not yet answered, of all producers together."""
    in_flight: int = 64
    """gRPC calls under way at once, of each producer or consumer."""
    send: Send = Send.NOWAIT
    read: Read = Read.BATCHES
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be carried out."""
        if not 0 <= self.size <= SIZE_MAX:
            raise Rejected(
                f"--size {self.size} is outside what one message may have: 0 to {SIZE_MAX:,} bytes"
            )
        if not 1 <= self.count <= COUNT_MAX:
            raise Rejected(f"--count {self.count} is outside 1 to {COUNT_MAX:,}")
        if self.processes > self.producers and self.processes > self.reading_groups:
            raise Rejected(
                f"--processes {self.processes} would leave some idle: use at most as many as there are"
                f" producers ({self.producers}) or subscriptions ({self.reading_groups})"
            )
        if self.protocol is Protocol.GRPC and (self.compression or self.send is Send.MANY):
            raise Rejected(
                "gRPC sends one message per call: --compression and --send many need the native protocol"
            )

    @property
    def reading_groups(self) -> int:
        """Subscriptions of all topics: what is shared out over processes when reading."""
        return self.topics * self.subscriptions

    def topic_names(self) -> list[str]:
        base = self.topic or f"/default/bench-{self.run}"
        if self.topics == 1:
            return [base]
        return [f"{base}-{number}" for number in range(self.topics)]

    def streams(self) -> list["Stream"]:
        """Producers on their topics: topics are dealt to producers, or producers to topics, like cards."""
        names = self.topic_names()
        number = max(self.producers, len(names))
        return [
            Stream(
                topic=names[index % len(names)],
                producer=f"bench-{self.run}-{index}",
                messages=part(self.count, number, index),
                warmup=part(self.warmup, number, index),
            )
            for index in range(number)
        ]

    def groups(self) -> list["Group"]:
        """What reads: each subscription of each topic."""
        return [
            Group(topic, f"bench-{self.run}-{number}", part(self.count, self.topics, index))
            for index, topic in enumerate(self.topic_names())
            for number in range(self.subscriptions)
        ]

    @property
    def batch_messages(self) -> int:
        """As many as --batch, or as many as fit into a batch."""
        return max(1, min(self.batch, BATCH_BYTES_MAX // (self.size + _ROW_BYTES)))

    @property
    def batch_bytes(self) -> int:
        """Large enough that the number of messages closes a batch, not their size."""
        return min(self.batch_messages * (self.size + _ROW_BYTES), BATCH_BYTES_MAX)

    def pending_bytes_each(self) -> int:
        """Of one producer on one topic; never less than two batches, so that they can overlap."""
        streams = max(self.producers, self.topics)
        return max(self.pending_bytes // streams, 2 * self.batch_messages * (self.size + _ROW_BYTES))

    def turns_pending(self) -> int:
        """Turns of one producer that may be waiting for their answers: as many as its bytes allow."""
        # At a rate a turn may be a single message.
        messages = 1 if self.rate else self.batch_messages
        return max(2, self.pending_bytes_each() // max(1, messages * self.size))

    def settings(self) -> dict[str, object]:
        """For the report: everything but secrets."""
        return {
            each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name not in _SECRET
        }

    def with_(self, **changes: object) -> "Plan":
        return replace(self, **changes)  # type: ignore[arg-type]


def _plain(value: object) -> object:
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Address | Path) else value


def part(total: int, parts: int, index: int) -> int:
    """How much of the total falls to one of so many parts: as even as whole numbers allow."""
    return total // parts + (index < total % parts)


def dealt(items: Sequence[Item], hands: int) -> list[list[Item]]:
    """The items dealt like cards to as many hands; none of them empty."""
    return [list(items[hand::hands]) for hand in range(min(hands, len(items)))]
