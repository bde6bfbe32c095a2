"""What an operator may ask of topics: which there are, making and deleting them, their policies, a look inside."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from msgspec.structs import replace

from pydanube.broker import facts
from pydanube.broker.batches import batch_rows, prepare_for_batches
from pydanube.broker.broker import Broker
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.topic import Topic
from pydanube.broker.unbroken import unbroken
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import DispatchStrategy, Policies
from pydanube.log.tail import Row
from pydanube.metadata.store import MetadataStore
from pydanube.protocol.messages import offset_suffix
from pydanube.protocol.native.batch import message_count

log = structlog.get_logger("pydanube.broker")

PARTITIONS_MAX = 10_000
DISCARD_SECONDS_MAX = 2.0
"""How long a deletion waits for stored history to go. A slow store goes on after the answer: tools wait 5 s."""
PEEKED_MAX = 100
PEEKED_BYTES_MAX = 1 << 20
"""Of one look, but for its first message: answers have to fit into the 4 MiB that clients take."""


@dataclass(frozen=True, slots=True)
class Peeked:
    offset: int
    append_ms: int
    message: bytes
    """A StreamMessage with its offset."""


class TopicControl:
    def __init__(self, broker: Broker, store: MetadataStore) -> None:
        self._broker = broker
        self._topics = broker.topics
        self._maker = broker.maker
        self._store = store
        self._discarding: set[asyncio.Task[None]] = set()

    # Which there are.

    def all(self) -> list[Topic]:
        return sorted(self._topics, key=lambda topic: topic.name)

    def of_namespace(self, namespace: str) -> list[Topic]:
        return [topic for topic in self.all() if topic.name.namespace == namespace]

    def find(self, text: str) -> Topic | None:
        """The topic of that name, None also if it is no name at all."""
        try:
            return self._topics.get(TopicName.parse(text))
        except Rejected:
            return None

    def get(self, name: TopicName) -> Topic:
        topic = self._topics.get(name)
        if topic is None:
            raise _unknown(name)
        return topic

    def partitions(self, name: TopicName) -> list[Topic]:
        """The topic, or all partitions of it in order."""
        names = self._topics.partitions(name)
        if not names:
            raise _unknown(name)
        return [self.get(partition) for partition in names]

    # Making and deleting.

    @unbroken
    async def create(self, name: TopicName, dispatch: DispatchStrategy, subject: str | None = None) -> None:
        """The schema subject is noted, not looked for: it may be registered later."""
        await self._maker.create_new(name, dispatch, subject)

    async def create_partitioned(
        self, base: TopicName, partitions: int, dispatch: DispatchStrategy, subject: str | None = None
    ) -> None:
        """Make every partition in order; those before one that cannot be made stay."""
        if partitions > PARTITIONS_MAX:
            raise Rejected(f"{partitions} partitions asked for {base}: {PARTITIONS_MAX} at most")
        names = [TopicName.parse(f"{base}-part-{number}") for number in range(partitions)]
        for name in names:
            await self.create(name, dispatch, subject)

    async def delete(self, name: TopicName) -> None:
        """Delete a topic with everything it has, or all partitions of it."""
        if name.partition_of is not None:
            raise Conflict(
                f"Cannot delete individual partition {name}: delete {name.partition_of}, which is all of them",
                ErrorCode.PARTITION_BOUND,
            )
        topics = self.partitions(name)
        if topics[0].name == name:
            await self._delete(topics[0])
            return
        for topic in topics:
            try:
                await self._delete(topic)
            except DanubeError as error:
                log.error("partition not deleted", topic=topic.text, error=error.text)

    @unbroken
    async def _delete(self, topic: Topic) -> None:
        async with self._maker.changing(topic.name), topic.changing:
            topic.check_exists()
            marks = [topic.log.history.deletion] if isinstance(topic, ReliableTopic) else []
            # Facts first: a restart must not bring back what was deleted, and finishes what the mark says was begun.
            await facts.delete_topic(self._store, topic.name, marks)
            topic.mark_deleted()
            self._broker.forget_topic(topic)
        log.info("topic deleted", topic=topic.text, topic_id=topic.facts.id)
        discarding = asyncio.get_running_loop().create_task(_discard(topic))
        self._discarding.add(discarding)
        discarding.add_done_callback(self._discarding.discard)
        await asyncio.wait([discarding], timeout=DISCARD_SECONDS_MAX)

    async def stop(self) -> None:
        """Leave the rest of deletions under way to the next start."""
        for task in self._discarding:
            task.cancel()
        await asyncio.gather(*self._discarding, return_exceptions=True)

    # Policies.

    @unbroken
    async def set_policies(self, name: TopicName, changes: Mapping[str, int]) -> Policies:
        """Give the topic policies of its own: those it has, with some changed."""
        topic = self.get(name)
        async with topic.changing:
            topic.check_exists()
            policies = replace(topic.policies, **changes)
            await self._store.put(facts.topic_policy_key(name), facts.encode(policies))
            topic.has_own_policies = True
            topic.set_policies(policies)
        log.info("topic policies changed", topic=topic.text, **changes)
        return policies

    @unbroken
    async def inherit_policies(self, name: TopicName) -> Policies:
        """Let the topic have its namespace's policies again."""
        topic = self.get(name)
        async with topic.changing:
            topic.check_exists()
            await self._store.delete(facts.topic_policy_key(name))
            topic.has_own_policies = False
            topic.set_policies(self._maker.namespaces.get(name.namespace) or Policies())
        log.info("topic policies inherited", topic=topic.text)
        return topic.policies

    # A look inside.

    async def peek(self, topic: ReliableTopic, offset: int, limit: int) -> list[Peeked]:
        """Stored messages from `offset` on, as many as there are and fit; nobody's cursor moves."""
        await prepare_for_batches()
        found: list[Peeked] = []
        size = 0
        limit = min(limit, PEEKED_MAX)
        while len(found) < limit and size < PEEKED_BYTES_MAX and offset < topic.log.committed_end:
            rows = await topic.log.read_cold(
                offset, messages_max=limit - len(found), bytes_max=PEEKED_BYTES_MAX
            )
            for row in rows:
                for message in await asyncio.to_thread(
                    _messages, topic.text, row, offset, limit - len(found)
                ):
                    size += len(message)
                    if found and size > PEEKED_BYTES_MAX:
                        return found
                    found.append(Peeked(offset, row[2], message + offset_suffix(offset)))
                    offset += 1
        return found


async def _discard(topic: Topic) -> None:
    try:
        await topic.discard()
    except DanubeError as error:
        log.warning(
            "topic's history not deleted yet, the next start will", topic=topic.text, error=error.text
        )


def _messages(topic: str, row: Row, offset: int, limit: int) -> list[bytes]:
    """The messages of an entry from `offset` on."""
    base, body = row[0], row[1]
    if body[0] != 0:
        return [body][:limit]
    skip = offset - base
    return batch_rows(body, topic, skip, min(message_count(body) - skip, limit))


def _unknown(name: TopicName) -> Rejected:
    return Rejected(f"topic {name} not found", ErrorCode.TOPIC_UNKNOWN)
