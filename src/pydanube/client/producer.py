"""Publishing to a topic, or to all its partitions."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Unpack

from pydanube.client.cluster import Cluster
from pydanube.client.encoding import Common
from pydanube.client.errors import QueueFull
from pydanube.client.fields import (
    Fields,
    Payload,
    TimingFields,
    checked_timing,
    common_fields,
    payload_bytes,
    too_large,
)
from pydanube.client.lanes import Lanes
from pydanube.client.options import ProducerOptions
from pydanube.client.outgoing import (
    MESSAGE_OVERHEAD_BYTES,
    PayloadRun,
    PendingSend,
    Publish,
    Receipt,
    Run,
)
from pydanube.client.routing import partition_name
from pydanube.client.topic_producer import TopicProducer
from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import check_name
from pydanube.protocol.native.batch import BATCH_MESSAGES_MAX
from pydanube.protocol.native.payload_batch import Measured, measure_payloads

if TYPE_CHECKING:
    from pydanube.client.tables import AnyTable

RUN_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one batch of a `send_many` or `send_table`."""


class Producer(Lanes):
    """Publishes; use it with `async with`, or `open` and `close` it. Made by `Client.producer`."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        name: str | None,
        options: ProducerOptions,
        max_pending_bytes: int,
        partitions: int | None,
        schema: Callable[[], Awaitable[tuple[int, int]]] | None = None,
    ) -> None:
        """`schema` tells the id and version of the schema that messages name unless they say otherwise."""
        super().__init__(topic, options.batching, max_pending_bytes)
        self.name: Final = check_name(name or f"producer-{secrets.token_hex(6)}", what="producer name")
        if max_pending_bytes < 1 or (partitions is not None and partitions < 1):
            raise Rejected("max_pending_bytes and partitions must be 1 or more")
        self._cluster = cluster
        self._options = options
        self._partitions = partitions
        self._schema = schema
        self._line = asyncio.Lock()
        """Held by who waits for room. The others stand in line for it: woken all at once, all but one would wait again."""

    async def __aenter__(self) -> "Producer":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            await self.close()
        else:
            await self._close_lanes()

    async def open(self) -> None:
        """Register with the brokers that serve the topic, which is created if need be."""
        targets = await self._targets()
        self._lanes = [
            TopicProducer(self._cluster, target, name, self._options, self.budget)
            for target, name in targets.items()
        ]
        try:
            await asyncio.gather(*(lane.open() for lane in self._lanes))
            if self._schema is not None:
                schema_id, version = await self._schema()
                for lane in self._lanes:
                    lane.stamp(schema_id, version)
        except BaseException:
            await self._close_lanes()
            raise
        self._only_lane = self._lanes[0] if len(self._lanes) == 1 else None

    async def _targets(self) -> dict[str, str]:
        """Topics or partitions to publish to, each with the producer's name there."""
        if self._partitions is not None:
            topics = [partition_name(self.topic, number) for number in range(self._partitions)]
        else:
            location = await self._cluster.with_retries(lambda: self._cluster.locate(self.topic))
            topics = list(location.partitions) or [self.topic]
        if topics == [self.topic]:
            return {self.topic: self.name}
        return {topic: f"{self.name}-{number}" for number, topic in enumerate(topics)}

    @property
    def partitions(self) -> list[str]:
        """The topics it publishes to: several if the topic has partitions."""
        return [lane.topic for lane in self._lanes]

    @property
    def pending_bytes(self) -> int:
        """Bytes sent and not answered yet."""
        return self.budget.used

    @property
    def last_sequence(self) -> int:
        """How many messages the topic has of this producer's name: where to go on after a restart."""
        if self._only_lane is None:
            raise Rejected(
                f"{self.topic} has partitions, each with sequences of its own: produce to one of them"
            )
        return self._only_lane.last_sequence

    async def send(self, payload: Payload, **fields: Unpack[Fields]) -> Receipt:
        """Publish a message and wait until it is safe.

        Messages with one key go to one partition, in order; without a key, partitions take turns.

        Raises:
            Rejected: the message, or something else about it, must change first.
            Unavailable: it was not taken, through all retries.
            OutcomeUnknown: it may have been taken; only without `idempotent`, or when retries ended.
        """
        pending: PendingSend | None = None
        if not self._line.locked():
            with suppress(QueueFull):
                pending = self.send_nowait(payload, **fields)
        if pending is None:
            async with self._line:
                pending = await self._sent(payload, fields)
        return await pending

    async def _sent(self, payload: Payload, fields: Fields) -> PendingSend:
        """Hand a message over as soon as there is room for it."""
        while True:
            try:
                return self.send_nowait(payload, **fields)
            except QueueFull:
                await self.room_change()

    async def ready(self) -> None:
        """Wait until there is room for a message of the usual size again."""
        async with self._line:
            while self.budget.used >= self.budget.limit - min(self._batch_bytes_max, self.budget.limit // 2):
                await self.room_change()

    async def room_change(self) -> None:
        """Wait until something was answered."""
        # What lingers would only keep everybody waiting.
        for lane in self._lanes:
            lane.close_batch()
        await self.budget.changed()

    async def send_many(self, payloads: Iterable[Payload], **fields: Unpack[Fields]) -> list[Run]:
        """Publish messages that share everything but their payloads, in as few batches as possible.

        Returns the runs of offsets they got, in the order of the payloads. If one batch fails, its error is raised
        once all are answered; the others may have been taken.
        """
        common, compaction_key = common_fields(fields, time.time_ns() // 1_000_000)
        publishes: list[Publish] = []
        for chunk, measured in chunks(payloads):
            lane = self._lane(common.key)
            if measured.largest > lane.payload_bytes_max:
                raise too_large(lane.topic, measured.largest, lane.payload_bytes_max)
            size = measured.all + len(chunk) * MESSAGE_OVERHEAD_BYTES
            publish = PayloadRun(chunk, size, common, compaction_key, lane.failed_unseen)
            publishes.append(await self._enqueue(lane, publish))
        return await _runs(publishes)

    async def send_table(
        self,
        table: "AnyTable",
        *,
        payload: str = "payload",
        key: str | None = None,
        attributes: str | None = None,
        publish_time: str | None = None,
        schema_id: str | None = None,
        schema_version: str | None = None,
        compaction_key: str | None = None,
        **timing: Unpack[TimingFields],
    ) -> list[Run]:
        """Publish each row of an Arrow table or record batch, or of a pandas or polars frame, as a message.

        `payload`, `key` and so on name the columns; those not named are looked for under the names of the protocol:
        routing_key, attributes, publish_time, schema_id, schema_version, compaction_key. No Python runs per row.
        Returns the runs of offsets, partition by partition if rows have keys.
        """
        # Here, because only tables need Arrow at once.
        from pydanube.client import tables  # noqa: PLC0415

        batch = tables.message_columns(
            table,
            payload=payload,
            routing_key=key,
            attributes=attributes,
            publish_time=publish_time,
            schema_id=schema_id,
            schema_version=schema_version,
            compaction_key=compaction_key,
        )
        common = Common(time.time_ns() // 1_000_000, checked_timing(timing))
        publishes: list[Publish] = []
        for part, number in tables.by_partition(batch, len(self._lanes)):
            for piece in tables.pieces(part, RUN_BYTES_MAX):
                lane = self._lanes[number] if number is not None else self._lane(None)
                publish = tables.TableRun(piece, common, lane.failed_unseen)
                publishes.append(await self._enqueue(lane, publish))
        return await _runs(publishes)

    async def _enqueue(self, lane: TopicProducer, publish: Publish) -> Publish:
        async with self._line:
            while not self.budget.has_room(publish.size):
                await self.room_change()
            lane.check_usable()
            self.budget.used += publish.size
            lane.close_batch()
            lane.enqueue(publish)
        return publish

    async def flush(self) -> None:
        """Wait until everything sent so far is answered; raises a failure that nobody was waiting for."""
        for lane in self._lanes:
            lane.close_batch()
        await asyncio.gather(*(lane.flush() for lane in self._lanes))
        for lane in self._lanes:
            error, lane.unseen = lane.unseen, None
            if error is not None:
                raise error

    async def close(self) -> None:
        """Flush, within the client's patience, and close."""
        try:
            await self.flush()
        finally:
            await self._close_lanes()

    async def _close_lanes(self) -> None:
        await asyncio.gather(*(lane.close() for lane in self._lanes))


class Chunk(NamedTuple):
    """Payloads that fit into a batch."""

    payloads: list[bytes]
    size: Measured


def chunks(payloads: Iterable[Payload]) -> Iterator[Chunk]:
    """Payloads in lists that fit into a batch each."""
    waiting: list[list[Any]] = [list(payloads)]
    while waiting:
        chunk = waiting.pop()
        size = measure_payloads(chunk)
        if size is None:
            waiting.append(list(map(payload_bytes, chunk)))
        elif len(chunk) > 1 and (size.all > RUN_BYTES_MAX or len(chunk) > BATCH_MESSAGES_MAX):
            middle = len(chunk) // 2
            waiting += (chunk[middle:], chunk[:middle])
        elif chunk:
            yield Chunk(chunk, size)


async def _runs(publishes: list[Publish]) -> list[Run]:
    """Wait for all, then report all, or the first failure."""
    for publish in publishes:
        if not publish.is_answered:
            await publish.wait()
    return [publish.result() for publish in publishes]
