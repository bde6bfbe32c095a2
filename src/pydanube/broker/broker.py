"""The broker: what every front door calls, whatever protocol it speaks.

Requests that change facts are coroutines: they decide, store the decision, then act on it. Publishing,
acknowledging and receiving are plain calls that never wait.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from pydanube.broker import facts
from pydanube.broker.agenda import Agenda
from pydanube.broker.batches import row_bytes_max
from pydanube.broker.directory import TopicDirectory
from pydanube.broker.facts import ConsumerFacts, ProducerFacts, StoredTopic
from pydanube.broker.held_publishes import Entry, HeldEntry, HeldRow
from pydanube.broker.live_topic import LiveTopic
from pydanube.broker.reader import Reader
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.schema_control import SchemaControl
from pydanube.broker.seeking import move_subscription
from pydanube.broker.sessions import (
    Consumer,
    Outlet,
    Producer,
    ProducerSession,
    RecentIds,
    Session,
    fenced,
)
from pydanube.broker.settings import BrokerSettings
from pydanube.broker.subscription import Subscription, check_key_filters, subscription_type
from pydanube.broker.topic import PublishDone, Topic
from pydanube.broker.topic_maker import TopicMaker
from pydanube.broker.unbroken import unbroken
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName, check_name
from pydanube.kernel.policies import DispatchStrategy, SubscriptionType
from pydanube.kernel.positions import CURSOR, Position
from pydanube.log.journal import Journal
from pydanube.metadata.store import MetadataStore
from pydanube.protocol.messages import OFFSET_SUFFIX_BYTES_MAX, AckScan, PublishScan, scan_publish
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.named_schemas import NamedPayloads, named_by_batch, named_by_row
from pydanube.protocol.native.timing import timing
from pydanube.schemas.registry import SchemaRegistry

log = structlog.get_logger("pydanube.broker")

MESSAGE_BYTES_MAX = 4 * 1024 * 1024 - 8 * 1024 - OFFSET_SUFFIX_BYTES_MAX
"""Largest StreamMessage taken. Clients decode at most 4 MiB: one larger message would stop them for
good, so an offset, and the attributes of a dead-letter copy, must still fit."""

CLOSED_SESSION_MS = 60_000
IDEMPOTENT_MS = 7 * 24 * 60 * 60 * 1_000
"""How long after it was last seen an idempotent producer is remembered."""
SESSIONS_REMEMBERED_MAX = 10_000


class Broker:
    """Topics, producers, subscriptions and consumers of this process."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: MetadataStore,
        journal: Journal,
        clock: Clock,
        dice: Dice,
        registry: SchemaRegistry,
    ) -> None:
        self.settings = settings
        self.topics = TopicDirectory()
        self.schemas = SchemaControl(self.topics, store, registry)
        self.agenda = Agenda()
        self.ticks = 0
        self._store = store
        self._journal = journal
        self._clock = clock
        self._dice = dice
        self.maker = TopicMaker(
            self.topics,
            settings=settings,
            store=store,
            journal=journal,
            agenda=self.agenda,
            clock=clock,
            dice=dice,
            schemas=self.schemas,
        )
        self._producers: dict[int, Producer] = {}
        self.consumers: dict[int, Consumer] = {}
        self._closed = RecentIds(keep_ms=CLOSED_SESSION_MS, count_max=SESSIONS_REMEMBERED_MAX)
        self._told_closed = RecentIds(keep_ms=3_600_000, count_max=SESSIONS_REMEMBERED_MAX)
        self._stopping = False

    # ── start and stop ──────────────────────────────────────────────────────────────────────────

    async def start(self) -> None:
        """Bring back every namespace, topic, subscription and id from the store and the journal."""
        await self.maker.load_namespaces()
        for stored in await facts.load_topics(self._store):
            await self._restore(stored)
        for topic_id in await self._journal.forget_unopened():
            log.warning("journal of a topic that no longer exists dropped", topic_id=topic_id)

    async def stop(self) -> None:
        """Refuse new work, end the streams, write down how far every subscription has come."""
        self._stopping = True
        now = self._clock.monotonic_ms()
        goodbye = Unavailable("the broker is stopping: reconnect", ErrorCode.STOPPING)
        for topic in self.topics:
            topic.drain()
            for consumer in topic.consumers():
                consumer.subscription.close_session(consumer, now, goodbye)
        self.agenda.run()
        for topic in self.topics:
            if topic.judge is not None:
                await topic.judge.close()

    # ── producers ───────────────────────────────────────────────────────────────────────────────

    async def create_producer(
        self,
        *,
        topic_name: str,
        producer_name: str,
        dispatch: int,
        exclusive: bool = False,
        subject: str | None = None,
    ) -> Producer:
        """Register a producer that is not idempotent, as `open_producer` does."""
        session = await self.open_producer(
            topic_name=topic_name,
            producer_name=producer_name,
            dispatch=dispatch,
            exclusive=exclusive,
            subject=subject,
        )
        return session.producer

    @unbroken
    async def open_producer(
        self,
        *,
        topic_name: str,
        producer_name: str,
        dispatch: int,
        exclusive: bool = False,
        subject: str | None = None,
        idempotent: bool = False,
        epoch: int | None = None,
    ) -> ProducerSession:
        """Register a producer name on a topic, creating the topic if that is allowed; the same name again is the same.

        An `idempotent` producer begins a session, which ends those of the same name before it; with the `epoch` of
        one it goes on with that session.
        """
        self._check_running()
        name = TopicName.parse(topic_name)
        check_name(producer_name, what="producer name")
        if dispatch not in (DispatchStrategy.NON_RELIABLE, DispatchStrategy.RELIABLE):
            raise Rejected(f"unknown dispatch strategy {dispatch}: 0 is non-reliable, 1 is reliable")
        if idempotent and dispatch != DispatchStrategy.RELIABLE:
            raise Rejected(
                f"producer {producer_name!r} of topic {name} cannot be idempotent: a non-reliable topic remembers nothing"
            )
        topic = self.topics.get(name)
        if topic is None:
            if subject:
                await self.schemas.check_registered(subject)
            topic = await self.maker.create(name, DispatchStrategy(dispatch), subject)
        if topic.dispatch != dispatch:
            raise Conflict(
                f"topic {name} is {topic.dispatch.name.lower()}: create the producer with that dispatch strategy",
                ErrorCode.DISPATCH_MISMATCH,
            )
        async with topic.changing:
            topic.check_exists()
            if subject:
                await self.schemas.adopt(topic, subject)
            now = self._clock.monotonic_ms()
            known = topic.producers.get(producer_name)
            if known is not None:
                known.seen_ms = now
                if not idempotent:
                    return ProducerSession(known, 0, 0)
                return await self._begin_session(known, epoch)
            if epoch is not None:
                raise fenced(f"producer {producer_name!r} of topic {name} is not known any more")
            topic.check_new_producer(exclusive=exclusive, now_ms=now)
            record = ProducerFacts(
                id=self._new_id(), name=producer_name, exclusive=exclusive, epoch=1 if idempotent else 0
            )
            await self._store.put(facts.producer_key(name, record.id), facts.encode(record))
            return ProducerSession(self._add_producer(topic, record), record.epoch, 0)

    def publish(self, scan: PublishScan, body: bytes, done: PublishDone) -> Topic:
        """Take one message, or raise why not; `done` is called when it is as safe as its topic promises."""
        if not scan.has_msg_id:
            raise Rejected(
                "StreamMessage.msg_id is missing: it names producer and topic", ErrorCode.MALFORMED_REQUEST
            )
        producer = self._producers.get(scan.producer_id)
        if producer is None:
            raise self._unknown_id("producer", scan.producer_id, ErrorCode.PRODUCER_UNKNOWN)
        topic = producer.topic
        if scan.topic_name != topic.wire_name:
            raise _foreign_topic(producer, scan.topic_name)
        try:
            _check_row_size(len(body))
            now = self._clock.now_ms()
            topic.admit(scan.payload_bytes, 1, now)
            is_timed = scan.is_timed and any(timing(body))
            judge = topic.active_judge
            if judge is not None and not judge.admits_row(producer.id, scan, body):
                entry = Entry(producer, 0, 0, body, 1, scan.payload_bytes, is_timed)
                judge.hold(HeldRow(entry, named_by_row(scan, body), self._clock, done))
                return topic
            topic.publish(body, 1, producer, 0, is_timed, now, done)
        except DanubeError as error:
            topic.refused[error.status.name] += 1
            raise
        producer.sent += 1
        return topic

    def publish_entry(  # noqa: PLR0917
        self,
        producer: Producer,
        epoch: int,
        sequence: int,
        body: bytes,
        taken: Callable[[int, int], None],
        done: PublishDone,
    ) -> None:
        """Take one entry body, a row or a batch, or raise why not.

        `taken` is told its first offset and how many messages it holds, at once or after its schema was loaded; then
        `done` is called as for `publish`, or instead of it if the schema forbids it. `epoch` is that of the producer's
        session, `sequence` that of the first message if it is idempotent.
        """
        topic = producer.topic
        try:
            producer.check_session(epoch, sequence)
            now = self._clock.now_ms()
            judge = topic.active_judge
            held: NamedPayloads | None = None
            if body[0] == 0:
                batch = check_batch(body)
                producer.check_sender(batch.head.producer_id)
                _check_row_size(row_bytes_max(batch, topic.wire_name))
                count, payload_bytes, is_timed = batch.count, batch.payload_bytes, batch.is_timed
                if payload_bytes > topic.policies.max_message_size > 0:
                    payload_bytes = batch.payload_bytes_max
                topic.admit(payload_bytes, count, now)
                if judge is not None:
                    named = named_by_batch(batch, body, with_payloads=judge.wants_payloads)
                    held = None if judge.admits(producer.id, named) else named
            else:
                scan = scan_publish(body)
                producer.check_sender(scan.producer_id)
                if scan.topic_name != topic.wire_name:
                    raise _foreign_topic(producer, scan.topic_name)
                _check_row_size(len(body))
                count, payload_bytes = 1, scan.payload_bytes
                is_timed = scan.is_timed and any(timing(body))
                topic.admit(payload_bytes, count, now)
                if judge is not None and not judge.admits_row(producer.id, scan, body):
                    held = named_by_row(scan, body)
            if judge is not None and held is not None:
                entry = Entry(producer, epoch, sequence, body, count, payload_bytes, is_timed)
                judge.hold(HeldEntry(entry, held, self._clock, taken, done))
                return
            offset = topic.publish(body, count, producer, sequence, is_timed, now, done)
        except DanubeError as error:
            topic.refused[error.status.name] += 1
            raise
        producer.sent += count
        taken(offset, count)

    def producer_left(self, producer: Producer) -> None:
        """A client said that it will not publish any more."""
        producer.left(self._clock.monotonic_ms())

    # ── subscriptions ───────────────────────────────────────────────────────────────────────────

    @unbroken
    async def subscribe(
        self,
        *,
        topic_name: str,
        subscription_name: str,
        consumer_name: str,
        kind: int,
        key_filters: Sequence[str] = (),
        start: Position = CURSOR,
    ) -> Consumer:
        """Register a consumer name on a subscription; the same name again takes over. Never creates a topic.

        `start` is where a subscription begins that does not exist yet.
        """
        self._check_running()
        topic = self._topic(TopicName.parse(topic_name))
        check_name(subscription_name, what="subscription name")
        check_name(consumer_name, what="consumer name")
        check_key_filters(key_filters)
        async with topic.changing:
            topic.check_exists()
            now = self._clock.monotonic_ms()
            subscription = topic.subscriptions.get(subscription_name)
            consumer = subscription.consumers.get(consumer_name) if subscription else None
            if subscription is not None and consumer is not None:
                subscription.renew(consumer, key_filters, now)
                await self._store_subscription(topic, subscription)
                return consumer
            if subscription is None:
                topic.check_new_subscription()
            topic.check_new_consumer(subscription, now)
            if subscription is None:
                kind_of_subscription = subscription_type(kind)
                settings = await facts.load_subscription_settings(self._store, topic.name, subscription_name)
                next_offset = None if start == CURSOR else await topic.find(start)
                subscription = topic.new_subscription(
                    subscription_name, kind_of_subscription, settings, next_offset
                )
            elif subscription.kind is SubscriptionType.EXCLUSIVE:
                for gone in list(subscription.consumers.values()):
                    self.remove_consumer(gone)
            record = ConsumerFacts(id=self._new_id(), name=consumer_name, key_filters=tuple(key_filters))
            consumer = subscription.register(record, now)
            try:
                await self._store_subscription(topic, subscription)
            except BaseException:
                subscription.remove(consumer, now)
                if not subscription.consumers:
                    topic.remove_subscription(subscription)
                raise
            self.consumers[consumer.id] = consumer
            return consumer

    def receive(self, consumer_id: int, outlet: Outlet) -> Session:
        """Attach a freshly opened stream to a consumer; an earlier stream of it ends with OK."""
        self._check_running()
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            raise self._unknown_id("consumer", consumer_id, ErrorCode.CONSUMER_UNKNOWN)
        now = self._clock.monotonic_ms()
        subscription = consumer.subscription
        hold_ms = consumer.note_attach(now)
        if not hold_ms:
            return subscription.attach(consumer, outlet, now)
        # Two clients fight over one name: the latest waits a little, so that the fight costs no CPU.
        session = subscription.hold_session(consumer, outlet, now)
        asyncio.get_running_loop().call_later(hold_ms / 1_000, self._attach_held, session)
        return session

    def stream_lost(self, session: Session) -> None:
        """The client went away: what it had not acknowledged is due again."""
        session.consumer.subscription.detach(session, self._clock.monotonic_ms())

    def stream_drained(self, session: Session) -> None:
        """A stream that was full takes messages again."""
        session.consumer.subscription.drained(session)

    def ack(self, scan: AckScan) -> None:
        """Settle one offset of a subscription. Late, foreign and duplicate acks are harmless."""
        self._addressed(scan).ack(scan.topic_offset, scan.topic_offset)

    def nack(self, scan: AckScan, *, delay_ms: int, reason: str | None) -> None:
        """Ask for redelivery of one offset."""
        self._addressed(scan).nack(scan.topic_offset, scan.topic_offset, delay_ms=delay_ms, reason=reason)

    @unbroken
    async def leave(self, consumer: Consumer) -> None:
        """A consumer said goodbye: forget it at once, so that others need not wait for its place."""
        topic = self._topic_of(consumer)
        async with topic.changing:
            # Somebody who subscribed under the same name meanwhile is not the one who left.
            is_gone = consumer.session is None and not consumer.awaits_stream
            if is_gone and self.consumers.get(consumer.id) is consumer:
                self.remove_consumer(consumer)
                await self._store_subscription(topic, consumer.subscription)

    @unbroken
    async def seek(self, consumer: Consumer, position: Position) -> int:
        """Move a whole subscription, also backwards; returns the offset it goes on with."""
        topic = self._topic_of(consumer)
        async with topic.changing:
            topic.check_exists()
            return await move_subscription(topic, consumer.subscription, position, self._store)

    async def open_reader(
        self, *, topic_name: str, start: Position, end: Position | None, outlet: Outlet
    ) -> Reader:
        """Replay a range of a reliable topic without a subscription."""
        self._check_running()
        topic = self._topic(TopicName.parse(topic_name))
        if not isinstance(topic, ReliableTopic):
            raise Rejected(f"topic {topic.text} is non-reliable: it keeps nothing that could be read")
        return await topic.open_reader(start, end, outlet)

    # ── questions ───────────────────────────────────────────────────────────────────────────────

    def serves(self, topic_name: str) -> bool:
        return self.topics.get(TopicName.parse(topic_name)) is not None

    def partitions(self, topic_name: str) -> list[str]:
        return [str(name) for name in self.topics.partitions(TopicName.parse(topic_name))]

    def dispatch_of(self, consumer: Consumer) -> DispatchStrategy:
        return self._topic_of(consumer).dispatch

    def is_producer_healthy(self, producer_id: int) -> bool:
        producer = self._producers.get(producer_id)
        if producer is None:
            return self._told_closed_first(producer_id, ErrorCode.PRODUCER_UNKNOWN)
        producer.seen_ms = self._clock.monotonic_ms()
        return not self._stopping

    def is_consumer_healthy(self, consumer_id: int) -> bool:
        consumer = self.consumers.get(consumer_id)
        if consumer is None:
            return self._told_closed_first(consumer_id, ErrorCode.CONSUMER_UNKNOWN)
        return consumer.is_active(self._clock.monotonic_ms())

    # ── forgetting ──────────────────────────────────────────────────────────────────────────────

    def remove_consumer(self, consumer: Consumer) -> None:
        """Forget a consumer; its id is answered kindly for a while."""
        now = self._clock.monotonic_ms()
        consumer.subscription.remove(consumer, now)
        if self.consumers.pop(consumer.id, None) is not None:
            self._closed.add(consumer.id, now)

    async def forget_idle(self, *, idle_ms_max: int) -> None:
        """Drop producers and consumers not seen for long, so that names used once do not pile up for ever."""
        now = self._clock.monotonic_ms()
        for topic in self.topics:
            async with topic.changing:
                for producer in list(topic.producers.values()):
                    # The memory of what an idempotent one has sent is what makes its retries harmless.
                    keep_ms = IDEMPOTENT_MS if producer.epoch else idle_ms_max
                    if producer.idle_ms(now) > keep_ms:
                        await self._store.delete(facts.producer_key(topic.name, producer.id))
                        topic.forget_producer(producer.id)
                        del topic.producers[producer.name]
                        del self._producers[producer.id]
                        self._closed.add(producer.id, now)
                for subscription in list(topic.subscriptions.values()):
                    await self._forget_idle_consumers(topic, subscription, now, idle_ms_max)

    async def _forget_idle_consumers(
        self, topic: Topic, subscription: Subscription, now_ms: int, idle_ms_max: int
    ) -> None:
        idle = [
            consumer
            for consumer in subscription.consumers.values()
            if consumer.session is None and now_ms - consumer.idle_since_ms > idle_ms_max
        ]
        for consumer in idle:
            self.remove_consumer(consumer)
        if idle:
            await self._store_subscription(topic, subscription)

    async def drop_idle_live_subscriptions(self) -> None:
        """Non-reliable subscriptions nobody has listened to for a minute disappear with their consumers."""
        for topic in self.topics:
            if not isinstance(topic, LiveTopic):
                continue
            async with topic.changing:
                for subscription in topic.idle_subscriptions(self._clock.monotonic_ms()):
                    await self._store.delete(facts.subscription_key(topic.name, subscription.name))
                    for consumer in list(subscription.consumers.values()):
                        self.remove_consumer(consumer)
                    topic.remove_subscription(subscription)

    def forget_topic(self, topic: Topic) -> None:
        """The topic is deleted: end its streams, and do not know its producers and consumers any more."""
        self.topics.remove(topic)
        for producer in topic.producers.values():
            del self._producers[producer.id]
        topic.producers.clear()
        now, gone = self._clock.monotonic_ms(), topic.deleted()
        for consumer in list(topic.consumers()):
            consumer.subscription.close_session(consumer, now, gone)
            consumer.subscription.remove(consumer, now)
            self.consumers.pop(consumer.id, None)

    async def reserve_topic_id(self) -> int:
        """A number no topic has or had."""
        return await self.maker.new_id()

    async def adopt_topic(self, name: TopicName, topic_id: int, offsets: tuple[int, int]) -> None:
        """Serve a topic whose segments were brought from elsewhere."""
        self._check_running()
        await self.maker.adopt(name, topic_id, offsets)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────

    def _check_running(self) -> None:
        if self._stopping:
            raise Unavailable("the broker is stopping: try again shortly", ErrorCode.STOPPING)

    def _topic(self, name: TopicName) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise Rejected(f"topic {name} not found", ErrorCode.TOPIC_UNKNOWN)
        return topic

    def _topic_of(self, consumer: Consumer) -> Topic:
        return self._topic(consumer.subscription.topic_name)

    async def _begin_session(self, producer: Producer, epoch: int | None) -> ProducerSession:
        if epoch is None:
            producer.epoch += 1  # from this moment on, whatever becomes of the new session
            key = facts.producer_key(producer.topic.name, producer.id)
            await self._store.put(key, facts.encode(producer.facts))
        elif epoch == 0 or epoch != producer.epoch:
            raise fenced(
                f"producer {producer.name!r} of topic {producer.topic.text} has a newer session than {epoch}"
            )
        # What the session before appended must be safe: its messages would not be sent again.
        await producer.topic.settle()
        return ProducerSession(producer, producer.epoch, producer.topic.last_sequence(producer.id))

    def _addressed(self, scan: AckScan) -> Subscription:
        if not scan.has_msg_id:
            raise Rejected("msg_id is missing: it names topic and offset", ErrorCode.MALFORMED_REQUEST)
        topic = self.topics.get_wire(scan.topic_name)
        if topic is None:
            raise Unavailable(
                f"topic {scan.topic_name!r} is not served here: look it up again", ErrorCode.TOPIC_MOVED
            )
        subscription = topic.subscriptions.get(scan.subscription.decode(errors="replace"))
        if subscription is None:
            raise Rejected(
                f"topic {topic.text} has no subscription {scan.subscription!r}",
                ErrorCode.SUBSCRIPTION_UNKNOWN,
            )
        return subscription

    def _unknown_id(self, what: str, identifier: int, code: ErrorCode) -> Rejected | Unavailable:
        if self._closed.contains(identifier, self._clock.monotonic_ms()):
            return Unavailable(
                f"{what} {identifier} was closed here: look the topic up again", ErrorCode.SESSION_GONE
            )
        return Rejected(f"{what} {identifier} not found: create it again", code)

    def _told_closed_first(self, identifier: int, code: ErrorCode) -> bool:
        """An unknown id hears CLOSE once, then an error: only that ends the ping tasks of some clients."""
        now = self._clock.monotonic_ms()
        if self._told_closed.contains(identifier, now):
            raise Rejected(f"id {identifier} not found: it was closed", code)
        self._told_closed.add(identifier, now)
        return False

    def _new_id(self) -> int:
        while True:
            identifier = self._dice.new_id()
            if identifier not in self._producers and identifier not in self.consumers:
                return identifier

    def _attach_held(self, session: Session) -> None:
        consumer = session.consumer
        if consumer.session is session:
            consumer.subscription.attach_session(session, self._clock.monotonic_ms())

    async def _restore(self, stored: StoredTopic) -> None:
        topic = await self.maker.open(stored)
        for record in stored.producers:
            self._add_producer(topic, record)
        for consumer in topic.consumers():
            self.consumers[consumer.id] = consumer

    def _add_producer(self, topic: Topic, record: ProducerFacts) -> Producer:
        producer = topic.add_producer(record, self._clock.monotonic_ms())
        self._producers[producer.id] = producer
        return producer

    async def _store_subscription(self, topic: Topic, subscription: Subscription) -> None:
        key = facts.subscription_key(topic.name, subscription.name)
        await self._store.put(key, facts.encode(subscription.facts))


def _foreign_topic(producer: Producer, named: bytes) -> Rejected:
    return Rejected(
        f"producer {producer.id} belongs to topic {producer.topic.text}, the message names {named!r}",
        ErrorCode.TOPIC_MISMATCH,
    )


def _check_row_size(size: int) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise Rejected(
            f"message of {size} bytes exceeds the {MESSAGE_BYTES_MAX} bytes every client can receive",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
