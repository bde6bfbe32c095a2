"""Reads the counters of a running broker into the table of metrics."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydanube.broker.broker import Broker
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.live_subscription import LiveSubscription
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.schema_validation import SchemaJudge
from pydanube.broker.topic import Topic
from pydanube.history.tiering import Tiering
from pydanube.kernel.policies import PoisonPolicy
from pydanube.log.journal import Journal
from pydanube.schemas.topic_schemas import ValidationPolicy
from pydanube.server import metrics
from pydanube.server.metrics import Sample
from pydanube.wire.calls import CallCounts
from pydanube.wire.grpc_connection import GrpcServer
from pydanube.wire.listener import Listener
from pydanube.wire.native_server import NativeServer
from pydanube.wire.routes import DataPlane

if TYPE_CHECKING:
    from pydanube.security.policy_guard import PolicyGuard

SHARED = "*"
"""In place of a topic where all topics share what is measured."""


class BrokerMetrics:
    """The `Source` of a broker's metrics port."""

    def __init__(
        self,
        broker: Broker,
        journal: Journal,
        tiering: Tiering,
        *,
        services: DataPlane,
        server: GrpcServer,
        native: NativeServer,
        listener: Listener,
        guard: "PolicyGuard | None" = None,
    ) -> None:
        self._guard = guard
        self._broker = broker
        self._journal = journal
        self._tiering = tiering
        self._server = server
        self._native = native
        self._listener = listener
        producer, consumer = services.producer, services.consumer
        self._calls: list[tuple[str, str, CallCounts]] = [
            ("producer", "create_producer", producer.create_calls),
            ("producer", "send_message", producer.send_calls),
            ("consumer", "subscribe", consumer.subscribe_calls),
            ("consumer", "receive_messages", consumer.receive_calls),
            ("consumer", "ack", consumer.ack_calls),
            ("consumer", "nack", consumer.nack_calls),
            ("native", "publish", native.publish_calls),
            ("native", "request", native.request_calls),
        ]

    def samples(self) -> Iterator[Sample]:
        yield from self._of_broker()
        yield from self._of_journal()
        yield from self._of_storage()
        for topic in self._broker.topics:
            yield from _of_topic(topic)
            for subscription in topic.subscriptions.values():
                labels = (topic.text, subscription.name)
                attached = sum(consumer.session is not None for consumer in subscription.consumers.values())
                yield metrics.SUBSCRIPTION_CONSUMERS, labels, attached
                yield metrics.MESSAGES_OUT, labels, subscription.messages_out
                yield metrics.BYTES_OUT, labels, subscription.bytes_out
                if isinstance(subscription, DurableSubscription):
                    yield from _of_durable(subscription, labels)
                elif isinstance(subscription, LiveSubscription):
                    yield metrics.DROPPED, labels, subscription.machine.dropped

    def _of_broker(self) -> Iterator[Sample]:
        yield metrics.TOPICS_OWNED, (), len(self._broker.topics)
        yield metrics.LEADER_STATE, (), 1
        yield metrics.HEARTBEAT_POLLS, (), self._broker.ticks
        yield metrics.NOTIFIER_POLLS, (), self._broker.agenda.runs
        yield metrics.CONNECTIONS_OPEN, (), self._listener.connections_open
        yield metrics.CONNECTIONS, (), self._server.connections.total + self._native.connections.total
        yield metrics.CONNECTIONS_REFUSED, (), self._listener.connections_refused_total
        errors = self._server.protocol_errors_total + self._native.protocol_errors_total
        yield metrics.PROTOCOL_ERRORS, (), errors
        yield from self._of_decisions()
        for service, method, counts in self._calls:
            yield metrics.RPCS, (service, method, "ok"), counts.ok
            yield metrics.RPCS, (service, method, "error"), counts.errors

    def _of_decisions(self) -> Iterator[Sample]:
        if self._guard is not None:
            for (scope, permission), count in self._guard.allowed.items():
                yield metrics.AUTHZ_ALLOWED, (scope, permission), count
            for (scope, permission), count in self._guard.denied.items():
                yield metrics.AUTHZ_DENIED, (scope, permission), count

    def _of_journal(self) -> Iterator[Sample]:
        stats = self._journal.stats
        yield metrics.JOURNAL_SYNCS, (), stats.syncs
        yield metrics.JOURNAL_BYTES, (), stats.bytes
        yield metrics.JOURNAL_UNSTAGED_BYTES, (), self._journal.unstaged_bytes
        yield metrics.WAL_FLUSH_LATENCY, (SHARED,), stats.sync_latency_us
        yield metrics.WAL_ROTATIONS, (SHARED, "size"), stats.rotations

    def _of_storage(self) -> Iterator[Sample]:
        stats = self._tiering.stats
        yield metrics.UPLOADS, (), stats.segments
        yield metrics.UPLOAD_BYTES, (), stats.bytes
        yield metrics.UPLOAD_LATENCY, (), stats.upload_ms
        yield metrics.UPLOAD_FAILURES, (), stats.failures
        yield metrics.ORPHANS, (), stats.orphans
        backlog = self._journal.places.backlog
        yield metrics.WAITING_BYTES, (), backlog.bytes
        for history in backlog.topics:
            yield metrics.SEGMENT_LAG, (str(history.topic),), self._tiering.lag_ms(history) / 1000


def _of_topic(topic: Topic) -> Iterator[Sample]:
    labels = (topic.text,)
    yield metrics.TOPIC_MESSAGES_IN, labels, topic.messages_in
    yield metrics.TOPIC_BYTES_IN, labels, topic.bytes_in
    yield metrics.TOPIC_MESSAGE_SIZE, labels, topic.message_sizes
    yield metrics.TOPIC_PRODUCERS, labels, len(topic.producers)
    yield metrics.TOPIC_CONSUMERS, labels, sum(1 for _ in topic.consumers())
    yield metrics.TOPIC_SUBSCRIPTIONS, labels, len(topic.subscriptions)
    yield metrics.PRODUCER_SENDS, (topic.text, "ok", "OK"), topic.messages_in
    for status, count in topic.refused.items():
        yield metrics.PRODUCER_SENDS, (topic.text, "error", status.title().replace("_", "")), count
    yield metrics.PRODUCER_SEND_LATENCY, labels, topic.send_latency_us
    if topic.judge is not None:
        yield from _of_judge(topic.judge, topic)
    if isinstance(topic, ReliableTopic):
        yield metrics.WAL_APPENDS, labels, topic.messages_in
        yield metrics.WAL_APPEND_BYTES, labels, topic.bytes_in
        yield metrics.WAL_FLUSHES, labels, topic.commits
        segments = topic.log.history.segments
        yield metrics.SEGMENTS, labels, len(segments)
        yield metrics.SEGMENT_BYTES, labels, sum(segment.size for segment in segments)


def _of_judge(judge: SchemaJudge, topic: Topic) -> Iterator[Sample]:
    for policy in (ValidationPolicy.WARN, ValidationPolicy.ENFORCE):
        checked = judge.checked(policy, topic.messages_in)
        if checked:
            yield metrics.SCHEMA_VALIDATIONS, (topic.text, policy.value.title()), checked
    for reason, count in judge.failures.items():
        if count:
            yield metrics.SCHEMA_FAILURES, (topic.text, reason.value), count


def _of_durable(subscription: DurableSubscription, labels: tuple[str, str]) -> Iterator[Sample]:
    machine = subscription.machine
    counters = machine.counters
    yield metrics.SUBSCRIPTION_LAG, labels, subscription.lag
    yield metrics.SUBSCRIPTION_PENDING, labels, machine.pending_redelivery
    yield metrics.SUBSCRIPTION_BLOCKED, labels, int(machine.blocked > 0)
    yield metrics.NACKS, labels, counters.nacked
    yield metrics.REDELIVERIES, labels, counters.redelivered
    yield metrics.ACK_TIMEOUTS, labels, counters.ack_timeouts
    for policy, count in (
        (PoisonPolicy.BLOCK, counters.exhausted_blocked),
        (PoisonPolicy.DROP, counters.exhausted_dropped),
        (PoisonPolicy.DEAD_LETTER, counters.exhausted_dead_lettered),
    ):
        yield metrics.RETRIES_EXHAUSTED, (*labels, policy.value), count
    yield metrics.DEAD_LETTERS, (*labels, PoisonPolicy.DEAD_LETTER.value), counters.dead_lettered
