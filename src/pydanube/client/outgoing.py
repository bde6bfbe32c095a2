"""What a producer publishes in one go, collected message by message, and how its sender hears of the outcome."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple

from mypy_extensions import mypyc_attr

from pydanube.client.encoding import (
    Codec,
    Common,
    Sender,
    Timing,
    encode_columns,
    encode_payloads,
    encode_row,
)
from pydanube.kernel.errors import DanubeError

MESSAGE_OVERHEAD_BYTES: Final = 32
"""Counted for each message beside its bytes, so that empty messages fill a queue too."""


class Receipt(NamedTuple):
    """A message is as safe as its topic promises. No offset: a non-reliable topic, or a repeat too old to be known."""

    topic: str
    offset: int | None


class Run(NamedTuple):
    """So many messages, from `offset` on; no offset for the reasons of a Receipt."""

    topic: str
    offset: int | None
    messages: int


# Tables are published by a subclass that needs Arrow, which is loaded with it and not before.
@mypyc_attr(allow_interpreted_subclasses=True)
class Publish(ABC):
    """One PUBLISH: waiting, on its way, or answered.

    The sequence is that of its first message and belongs to it from the first sending on.
    """

    __slots__ = (
        "_on_unseen",
        "_waiters",
        "count",
        "error",
        "is_answered",
        "is_hurried",
        "may_be_taken",
        "order",
        "request",
        "run",
        "sent_at",
        "sequence",
        "size",
        "wire_bytes",
    )

    def __init__(self, count: int, size: int, on_unseen: Callable[[DanubeError], None]) -> None:
        self.count = count
        self.size = size
        """Bytes it takes of the producer's budget."""
        self.order = 0
        """Place in its queue: what came first leaves first."""
        self.sequence = 0
        self.request = 0
        self.wire_bytes = 0
        self.sent_at = 0.0
        self.may_be_taken = False
        """Sent, and no answer says that it was refused."""
        self.is_hurried = False
        self.is_answered = False
        self.run: Run | None = None
        self.error: DanubeError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self._on_unseen = on_unseen

    @abstractmethod
    def encode(self, sender: Sender, codec: Codec) -> list[bytes]:
        """The entry body, in parts. Called again if it must be sent again, since the producer's id may have changed."""

    def succeeded(self, run: Run) -> None:
        self.run = run
        self._answer()

    def failed(self, error: DanubeError) -> None:
        self.error = error
        if not self._answer():
            self._on_unseen(error)

    def _answer(self) -> bool:
        """Wake who waits; False if nobody does."""
        self.is_answered = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        return bool(waiters)

    def result(self) -> Run:
        if self.error is not None:
            raise self.error
        assert self.run is not None
        return self.run

    def hurry(self) -> None:
        """Somebody waits for it."""
        self.is_hurried = True

    def wait(self) -> asyncio.Future[None]:
        """A future of the caller's own, so that a caller who is cancelled takes nobody along."""
        waiter = asyncio.get_running_loop().create_future()
        if self.is_answered:
            waiter.set_result(None)
        else:
            self.hurry()
            self._waiters.append(waiter)
        return waiter


class PendingSend:
    """A message on its way. Await it for its Receipt; or do not, and let `flush` tell of failures."""

    __slots__ = ("_index", "_publish")

    def __init__(self, publish: Publish, index: int) -> None:
        self._publish = publish
        self._index = index

    @property
    def is_answered(self) -> bool:
        return self._publish.is_answered

    def __await__(self) -> Generator[Any, None, Receipt]:
        publish = self._publish
        if not publish.is_answered:
            yield from publish.wait()
        run = publish.result()
        return Receipt(run.topic, None if run.offset is None else run.offset + self._index)


class Extras(NamedTuple):
    """What a message may carry besides its payload."""

    key: str | None = None
    attributes: Mapping[str, str] | None = None
    publish_time: int | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    compaction_key: bytes | None = None

    @property
    def size(self) -> int:
        size = len(self.key or "") + len(self.compaction_key or b"")
        if self.attributes:
            size += sum(len(name) + len(value) + 8 for name, value in self.attributes.items())
        return size


NO_EXTRAS: Final = Extras()
UNTIMED: Final = Timing(0, 0, 0)


class MessageBatch(Publish):
    """Collects messages. Columns nobody uses do not exist; a column begins with the first message that needs it."""

    __slots__ = ("_extras", "_hurried", "_spare", "opened_ms", "payloads", "room", "timing")

    def __init__(
        self,
        opened_ms: int,
        timing: Timing,
        on_unseen: Callable[[DanubeError], None],
        on_hurried: Callable[["MessageBatch"], None],
    ) -> None:
        super().__init__(0, 0, on_unseen)
        self.opened_ms = opened_ms
        """Publish time of the messages that bring none."""
        self.timing = timing
        self.payloads: list[bytes] = []
        self.room = 0
        """Bytes set aside for messages of nothing but a payload, to add which is the fast way; negative if the batch
        has other messages, so that nothing more comes that way."""
        self._spare = 0
        """Bytes set aside and not used, once `room` is negative."""
        self._extras: list[Extras] | None = None
        self._hurried = on_hurried

    @property
    def spare(self) -> int:
        """Bytes set aside and not used. What is used is `size - spare`."""
        return self._spare if self.room < 0 else self.room

    def set_aside(self, size: int) -> None:
        """More bytes of the producer's budget are for this batch."""
        self.size += size
        if self.room < 0:
            self._spare += size
        else:
            self.room += size

    def add(self, payload: bytes, extras: Extras, size: int) -> int:
        """Take a message, for which bytes were set aside, and return its place."""
        index = len(self.payloads)
        if (extras is not NO_EXTRAS or self.timing is not UNTIMED) and self.room >= 0:
            self._spare, self.room = self.room, -1
            self._extras = [NO_EXTRAS] * index
        if self._extras is not None:
            self._extras.append(extras)
        if self.room < 0:
            self._spare -= size
        else:
            self.room -= size
        self.payloads.append(payload)
        return index

    def seal(self) -> int:
        """Nothing more comes; returns the bytes set aside in vain."""
        spare = self.spare
        self.size -= spare
        self.room, self._spare = -1, 0
        self.count = len(self.payloads)
        return spare

    def hurry(self) -> None:
        if not self.is_hurried:
            self.is_hurried = True
            self._hurried(self)

    def encode(self, sender: Sender, codec: Codec) -> list[bytes]:
        extras = self._extras
        if len(self.payloads) == 1:
            only = extras[0] if extras is not None else NO_EXTRAS
            common = Common(
                publish_time=self.opened_ms if only.publish_time is None else only.publish_time,
                timing=self.timing,
                key=only.key,
                attributes=only.attributes,
                schema_id=only.schema_id,
                schema_version=only.schema_version,
            )
            return encode_row(sender, self.payloads[0], common, only.compaction_key)
        common = Common(publish_time=self.opened_ms, timing=self.timing)
        if extras is None:
            return encode_payloads(sender, self.payloads, common, codec)
        keys, attributes, times, schema_ids, schema_versions, compaction_keys = zip(*extras, strict=True)
        if any(time is not None for time in times):
            times = tuple(self.opened_ms if time is None else time for time in times)
        return encode_columns(
            sender,
            self.payloads,
            common,
            codec,
            routing_keys=_column(keys),
            attributes=_column(attributes),
            publish_times=_column(times),
            schema_ids=_column(schema_ids),
            schema_versions=_column(schema_versions),
            compaction_keys=_column(compaction_keys),
        )


def _column(values: tuple[Any, ...]) -> tuple[Any, ...] | None:
    return values if any(value is not None for value in values) else None


class PayloadRun(Publish):
    """Part of a `send_many`: payloads that have everything else in common."""

    __slots__ = ("_common", "_compaction_key", "_payloads")

    def __init__(
        self,
        payloads: list[bytes],
        size: int,
        common: Common,
        compaction_key: bytes | None,
        on_unseen: Callable[[DanubeError], None],
    ) -> None:
        super().__init__(len(payloads), size, on_unseen)
        self._payloads = payloads
        self._common = common
        self._compaction_key = compaction_key

    def encode(self, sender: Sender, codec: Codec) -> list[bytes]:
        if self.count == 1:
            return encode_row(sender, self._payloads[0], self._common, self._compaction_key)
        if self._compaction_key is None:
            return encode_payloads(sender, self._payloads, self._common, codec)
        compaction_keys = (self._compaction_key,) * self.count
        return encode_columns(sender, self._payloads, self._common, codec, compaction_keys=compaction_keys)
