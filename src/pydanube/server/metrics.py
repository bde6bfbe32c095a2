"""The metrics of a broker as a table, and how readings become the Prometheus text format.

The hot path only counts in plain integers and `Distribution`s. At a scrape a `Source` reads them on the
event loop, where nothing can change meanwhile; rendering is done elsewhere from that reading.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from pydanube.kernel.distribution import QUANTILES, Distribution


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table. Readings are multiplied by `scale`: latencies are counted in whole µs."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    scale: float = 1.0


TOPIC: Final = ("topic",)
SUBSCRIPTION: Final = ("topic", "subscription")
MICROSECONDS_AS_MS: Final = 0.001

TOPIC_MESSAGES_IN = Metric("danube_topic_messages_in_total", Kind.COUNTER, "Messages accepted", TOPIC)
TOPIC_BYTES_IN = Metric("danube_topic_bytes_in_total", Kind.COUNTER, "Bytes of messages accepted", TOPIC)
TOPIC_MESSAGE_SIZE = Metric(
    "danube_topic_message_size_bytes", Kind.SUMMARY, "Size of messages accepted", TOPIC
)
TOPIC_PRODUCERS = Metric("danube_topic_active_producers", Kind.GAUGE, "Producers of a topic", TOPIC)
TOPIC_CONSUMERS = Metric("danube_topic_active_consumers", Kind.GAUGE, "Consumers of a topic", TOPIC)
TOPIC_SUBSCRIPTIONS = Metric(
    "danube_topic_active_subscriptions", Kind.GAUGE, "Subscriptions of a topic", TOPIC
)
MESSAGES_OUT = Metric("danube_consumer_messages_out_total", Kind.COUNTER, "Messages delivered", SUBSCRIPTION)
BYTES_OUT = Metric(
    "danube_consumer_bytes_out_total", Kind.COUNTER, "Bytes of messages delivered", SUBSCRIPTION
)
PRODUCER_SENDS = Metric(
    "danube_producer_send_total",
    Kind.COUNTER,
    "Messages of publishes answered",
    ("topic", "result", "error_code"),
)
PRODUCER_SEND_LATENCY = Metric(
    "danube_producer_send_latency_ms",
    Kind.SUMMARY,
    "From the arrival of a publish to its acknowledgement",
    TOPIC,
    scale=MICROSECONDS_AS_MS,
)
RPCS = Metric("danube_broker_rpc_total", Kind.COUNTER, "Calls answered", ("service", "method", "result"))
TOPICS_OWNED = Metric("danube_broker_topics_owned", Kind.GAUGE, "Topics served by this broker")
SUBSCRIPTION_CONSUMERS = Metric(
    "danube_subscription_active_consumers", Kind.GAUGE, "Consumers attached", SUBSCRIPTION
)
SUBSCRIPTION_LAG = Metric(
    "danube_subscription_lag_messages", Kind.GAUGE, "Messages not acknowledged yet", SUBSCRIPTION
)
SUBSCRIPTION_PENDING = Metric(
    "danube_subscription_pending_redelivery", Kind.GAUGE, "Messages waiting to be sent again", SUBSCRIPTION
)
SUBSCRIPTION_BLOCKED = Metric(
    "danube_subscription_terminal_blocked", Kind.GAUGE, "1 while a poison message blocks it", SUBSCRIPTION
)
NACKS = Metric("danube_subscription_nack_total", Kind.COUNTER, "Negative acknowledgements", SUBSCRIPTION)
REDELIVERIES = Metric(
    "danube_subscription_redelivery_total", Kind.COUNTER, "Messages sent again", SUBSCRIPTION
)
ACK_TIMEOUTS = Metric(
    "danube_subscription_ack_timeout_total", Kind.COUNTER, "Messages not acknowledged in time", SUBSCRIPTION
)
_POISON: Final = (*SUBSCRIPTION, "poison_policy")
RETRIES_EXHAUSTED = Metric(
    "danube_subscription_retry_exhausted_total", Kind.COUNTER, "Messages out of redeliveries", _POISON
)
DEAD_LETTERS = Metric(
    "danube_subscription_dlq_total", Kind.COUNTER, "Messages sent to the dead-letter topic", _POISON
)
DROPPED = Metric(
    "danube_subscription_dropped_total",
    Kind.COUNTER,
    "Messages of non-reliable topics no consumer could take",
    SUBSCRIPTION,
)
SCHEMA_VALIDATIONS = Metric(
    "danube_schema_validation_total",
    Kind.COUNTER,
    "Messages judged by the schema policy of their topic",
    ("topic", "policy"),
)
SCHEMA_FAILURES = Metric(
    "danube_schema_validation_failures_total",
    Kind.COUNTER,
    "Messages that do not follow the schema of their topic, accepted or not",
    ("topic", "reason"),
)
WAL_APPENDS = Metric("danube_wal_append_total", Kind.COUNTER, "Messages appended to the journal", TOPIC)
WAL_APPEND_BYTES = Metric(
    "danube_wal_append_bytes_total", Kind.COUNTER, "Bytes appended to the journal", TOPIC
)
WAL_FLUSHES = Metric(
    "danube_wal_flush_total",
    Kind.COUNTER,
    "Commits of the shared journal that held messages of the topic",
    TOPIC,
)
WAL_FLUSH_LATENCY = Metric(
    "danube_wal_flush_latency_ms",
    Kind.SUMMARY,
    "Time of one durable write of the journal, which all topics share: topic is *",
    TOPIC,
    scale=MICROSECONDS_AS_MS,
)
WAL_ROTATIONS = Metric(
    "danube_wal_file_rotate_total",
    Kind.COUNTER,
    "Journal files begun; all topics share them: topic is *",
    ("topic", "reason"),
)
JOURNAL_SYNCS = Metric(
    "danube_journal_sync_total", Kind.COUNTER, "Durable writes of the journal, for all topics"
)
JOURNAL_BYTES = Metric(
    "danube_journal_bytes_total", Kind.COUNTER, "Bytes written to the journal, padding included"
)
JOURNAL_UNSTAGED_BYTES = Metric("danube_journal_unstaged_bytes", Kind.GAUGE, "Bytes in the journal only")
SEGMENTS = Metric("danube_topic_segments", Kind.GAUGE, "Segments of the topic in the durable store", TOPIC)
SEGMENT_BYTES = Metric("danube_topic_segment_bytes", Kind.GAUGE, "Size of these segments", TOPIC)
SEGMENT_LAG = Metric(
    "danube_topic_upload_lag_seconds",
    Kind.GAUGE,
    "Age of the oldest message on disk but in no segment yet",
    TOPIC,
)
UPLOADS = Metric("danube_cloud_upload_objects_total", Kind.COUNTER, "Segments put into the durable store")
UPLOAD_BYTES = Metric("danube_cloud_upload_bytes_total", Kind.COUNTER, "Size of these segments")
UPLOAD_LATENCY = Metric(
    "danube_cloud_upload_latency_ms", Kind.SUMMARY, "Time to put one segment into the durable store"
)
UPLOAD_FAILURES = Metric(
    "danube_cloud_upload_failures_total", Kind.COUNTER, "Segments not made or not stored, tried again later"
)
ORPHANS = Metric("danube_cloud_orphans_removed_total", Kind.COUNTER, "Objects without a descriptor removed")
WAITING_BYTES = Metric(
    "danube_storage_waiting_bytes", Kind.GAUGE, "Bytes on the local disk that are in no segment yet"
)
LEADER_STATE = Metric("danube_leader_election_state", Kind.GAUGE, "1 if this broker leads; alone it does")
HEARTBEAT_POLLS = Metric(
    "danube_dispatcher_heartbeat_polls_total", Kind.COUNTER, "Looks at subscriptions because time passed"
)
NOTIFIER_POLLS = Metric(
    "danube_dispatcher_notifier_polls_total",
    Kind.COUNTER,
    "Looks at subscriptions because something happened",
)
CONNECTIONS_OPEN = Metric("danube_connections_open", Kind.GAUGE, "Client connections open")
CONNECTIONS = Metric("danube_connections_total", Kind.COUNTER, "Client connections accepted")
CONNECTIONS_REFUSED = Metric(
    "danube_connections_refused_total", Kind.COUNTER, "Client connections refused for lack of room"
)
_DECISION: Final = ("resource", "permission")
AUTHZ_ALLOWED = Metric(
    "danube_authz_allow_total", Kind.COUNTER, "Decisions to allow; remembered ones are not counted", _DECISION
)
AUTHZ_DENIED = Metric("danube_authz_deny_total", Kind.COUNTER, "Decisions to deny", _DECISION)
PROTOCOL_ERRORS = Metric(
    "danube_connection_protocol_errors_total", Kind.COUNTER, "Connections closed for breaking the protocol"
)

TABLE: Final = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
"""Every metric, in the order of the exposition."""

Sample = tuple[Metric, Sequence[str], int | float | Distribution]
"""A metric, the values of its labels, and the reading."""


class Source(Protocol):
    """Whoever holds the counters."""

    def samples(self) -> Iterable[Sample]:
        """Read everything now; called on the event loop and expected to be quick."""
        ...


def read(source: Source) -> list[Sample]:
    """A reading that later counting does not touch."""
    return [
        (metric, labels, value.copy() if isinstance(value, Distribution) else value)
        for metric, labels, value in source.samples()
    ]


def render(samples: Iterable[Sample], *, broker_id: str) -> bytes:
    """The text exposition of a reading; every series carries `broker="{broker_id}"`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reading(samples, broker_id))
    return generate_latest(registry)


class _Reading(Collector):
    """Shows one reading to prometheus_client. Metrics without a sample still show their help and type."""

    def __init__(self, samples: Iterable[Sample], broker_id: str) -> None:
        self._broker_id = broker_id
        self._by_metric: dict[Metric, list[tuple[Sequence[str], int | float | Distribution]]] = {
            metric: [] for metric in TABLE
        }
        for metric, labels, value in samples:
            self._by_metric[metric].append((labels, value))

    def collect(self) -> Iterator[Family]:
        for metric, readings in self._by_metric.items():
            family = _FAMILIES[metric.kind](metric.name, metric.help)
            for values, reading in readings:
                labels = dict(zip(metric.labels, values, strict=True), broker=self._broker_id)
                _add(family, metric, labels, reading)
            yield family


_FAMILIES: Final[
    dict[Kind, type[CounterMetricFamily] | type[GaugeMetricFamily] | type[SummaryMetricFamily]]
] = {
    Kind.COUNTER: CounterMetricFamily,
    Kind.GAUGE: GaugeMetricFamily,
    Kind.SUMMARY: SummaryMetricFamily,
}


def _add(family: Family, metric: Metric, labels: dict[str, str], reading: int | float | Distribution) -> None:
    if not isinstance(reading, Distribution):
        family.add_sample(metric.name, labels, reading * metric.scale)
        return
    for share, value in zip(QUANTILES, reading.quantiles(), strict=True):
        family.add_sample(metric.name, labels | {"quantile": f"{share:g}"}, value * metric.scale)
    family.add_sample(metric.name + "_sum", labels, reading.sum * metric.scale)
    family.add_sample(metric.name + "_count", labels, reading.count)
