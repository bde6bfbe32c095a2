"""A topic whose messages are journaled before they are acknowledged, and kept until retention lets them go."""

import asyncio

from pydanube.broker.agenda import Agenda
from pydanube.broker.dead_letters import DeadLetters
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.facts import StoredSubscription, StoredTopic
from pydanube.broker.reader import Reader
from pydanube.broker.sessions import Outlet, Producer
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import PublishDone, Topic
from pydanube.entries.entry import Kind
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError, ErrorCode, Unavailable
from pydanube.kernel.policies import DispatchStrategy, Policies, Retention, SubscriptionType
from pydanube.kernel.positions import Position, PositionKind
from pydanube.log.topic_log import TopicLog
from pydanube.protocol.native.bodies import NO_OFFSET


class ReliableTopic(Topic):
    dispatch = DispatchStrategy.RELIABLE

    def __init__(
        self,
        stored: StoredTopic,
        policies: Policies,
        *,
        topic_log: TopicLog,
        max_unacked_messages: int,
        agenda: Agenda,
        clock: Clock,
        dead_letters: DeadLetters,
    ) -> None:
        assert stored.facts is not None
        super().__init__(stored.name, stored.facts, policies)
        self.log = topic_log
        self.commits = 0
        self._max_unacked_messages = max_unacked_messages
        self._agenda = agenda
        self._clock = clock
        self._dead_letters = dead_letters
        self.durable: list[DurableSubscription] = []
        self._readers: set[Reader] = set()
        topic_log.on_committed = self._committed
        for held in stored.subscriptions.values():
            if held.facts is not None:
                subscription = self._open(
                    held.facts.name, held.facts.type, held, initial_cursor=held.facts.initial_cursor
                )
                subscription.restore(held.facts.consumers, clock.monotonic_ms())

    def publish(  # noqa: PLR0917
        self,
        body: bytes,
        count: int,
        producer: Producer,
        sequence: int,
        is_timed: bool,
        now_ms: int,
        done: PublishDone,
    ) -> int:
        topic_log = self.log
        if sequence:
            original = topic_log.check_sequence(producer.id, sequence, count)
            if original is not None:
                # Taken before; the answer is as good as the first one only once that is durable.
                topic_log.call_when_committed(done)
                return original if original >= 0 else NO_OFFSET
        offset = topic_log.append(
            body,
            count=count,
            kind=Kind.BATCH if body[0] == 0 else Kind.ROW,
            timed=is_timed,
            producer_id=producer.id,
            sequence=sequence,
            append_ms=now_ms,
            done=done,
        )
        self._count_in(count, len(body))
        return offset

    async def find(self, position: Position) -> int:
        """Never below the oldest offset there is, nor above the end."""
        topic_log = self.log
        if position.kind is PositionKind.EARLIEST:
            return topic_log.start_offset
        if position.kind is PositionKind.OFFSET:
            return min(max(position.value, topic_log.start_offset), topic_log.committed_end)
        if position.kind is PositionKind.TIMESTAMP:
            return min(await topic_log.find_time(position.value), topic_log.committed_end)
        return topic_log.committed_end

    def new_subscription(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription, next_offset: int | None = None
    ) -> Subscription:
        # Messages on their way to the disk belong to those who subscribed before: start behind what is safe.
        start = self.log.committed_end if next_offset is None else next_offset
        # One of that name deleted just before a crash may have left its cursor.
        self.log.drop_cursor(name)
        return self._open(name, kind, settings, initial_cursor=start - 1)

    def remove_subscription(self, subscription: Subscription) -> None:
        assert isinstance(subscription, DurableSubscription)
        subscription.close()
        self.durable.remove(subscription)
        del self.subscriptions[subscription.name]
        self.log.drop_cursor(subscription.name)

    def last_sequence(self, producer_id: int) -> int:
        return self.log.sequence_of(producer_id)

    async def settle(self) -> None:
        settled = asyncio.get_running_loop().create_future()

        def told(error: DanubeError | None) -> None:
            if not settled.done():
                settled.set_result(None)

        self.log.call_when_committed(told)
        await settled

    def forget_producer(self, producer_id: int) -> None:
        self.log.forget_producer(producer_id)

    async def apply_retention(self, retention: Retention, now_ms: int) -> None:
        """Delete the staged history that policy and subscriptions let go."""
        unconsumed = min((subscription.cursor + 1 for subscription in self.durable), default=None)
        await self.log.retain(retention, unconsumed_from=unconsumed, now_ms=now_ms)

    async def open_reader(self, start: Position, end: Position | None, outlet: Outlet) -> Reader:
        """Send what is from `start` to `end` through the outlet, as it has room."""
        first = await self.find(start)
        last = None if end is None else await self.find(end)
        reader = Reader(
            self.log,
            self.text,
            outlet,
            self._agenda,
            next_offset=first,
            end_offset=last,
            on_closed=self._readers.discard,
        )
        self._readers.add(reader)
        self._agenda.add(reader)
        return reader

    def close(self) -> None:
        for subscription in self.durable:
            subscription.close()
        for reader in list(self._readers):
            reader.close()

    def set_policies(self, policies: Policies) -> None:
        super().set_policies(policies)
        for subscription in self.durable:
            subscription.set_dispatch_rate(policies.max_subscription_dispatch_rate)

    async def discard(self) -> None:
        for reader in list(self._readers):
            reader.end(self.deleted())
        for subscription in self.durable:
            subscription.close()
        # What is on its way to the disk is answered first.
        await self.settle()
        await self.log.delete()

    def drain(self) -> None:
        super().drain()
        for reader in list(self._readers):
            reader.end(
                Unavailable(f"topic {self.text} is being closed here: look it up again", ErrorCode.STOPPING)
            )

    def _committed(self) -> None:
        self.commits += 1
        for subscription in self.durable:
            self._agenda.add(subscription)
        for reader in self._readers:
            self._agenda.add(reader)

    def _open(
        self, name: str, kind: SubscriptionType, settings: StoredSubscription, *, initial_cursor: int
    ) -> DurableSubscription:
        subscription = DurableSubscription(
            name,
            kind,
            topic_name=self.name,
            topic_log=self.log,
            initial_cursor=initial_cursor,
            failure_policy=settings.failure_policy,
            max_unacked_messages=settings.max_unacked_messages or self._max_unacked_messages,
            dispatch_rate=self.policies.max_subscription_dispatch_rate,
            agenda=self._agenda,
            clock=self._clock,
            dead_letters=self._dead_letters,
        )
        self.subscriptions[name] = subscription
        self.durable.append(subscription)
        return subscription
