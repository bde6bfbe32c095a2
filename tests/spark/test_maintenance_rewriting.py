"""Compaction and erasure on a real broker: what is left of a topic, for whom, and where."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess

from pydanube.kernel.errors import Rejected
from pydanube.spark.connection import Connection
from pydanube.spark.maintenance.compaction import CompactionSettings, KeyKind, compact
from pydanube.spark.maintenance.erasure import ErasureSettings, erase
from pydanube.spark.maintenance.sealed_history import SealedHistory, Target
from pydanube.spark.reading import read_topic

SECRET = b"what nobody may find again"


@pytest.fixture(scope="module")
def target(spark: SparkSession, broker: BrokerProcess) -> Target:
    return Target(spark, broker.connection, Connection(broker.admin_address))


def send(
    broker: BrokerProcess,
    topic: str,
    messages: Iterable[tuple[str | None, bytes]],
    *,
    compacted: bool = False,
) -> None:
    """Messages by key, sealed as one segment."""
    with broker.client() as client, client.producer(topic) as producer:
        for key, payload in messages:
            if compacted:
                producer.send(payload, compaction_key=key)
            else:
                producer.send(payload, key=key)
    broker.seal(topic)


def read(broker: BrokerProcess, topic: str) -> list[tuple[int, bytes]]:
    with broker.client() as client, client.reader(topic, start="earliest", end="latest") as reader:
        return [(message.offset or 0, message.payload) for message in reader]


def consume(broker: BrokerProcess, topic: str, count: int) -> list[bytes]:
    with (
        broker.client() as client,
        client.consumer(topic, subscription="late", start="earliest") as consumer,
    ):
        received = []
        for _ in range(count):
            message = consumer.receive(timeout=20)
            consumer.ack(message)
            received.append(message.payload)
        return received


def test_small_neighbours_become_one_segment_and_nothing_else_changes(
    target: Target, broker: BrokerProcess
) -> None:
    topic = "/default/merged"
    for number in range(4):
        send(broker, topic, [("k", b"%d %d" % (number, each)) for each in range(50)])
    broker.publish(topic, [b"not sealed"])
    before = read(broker, topic)
    planned = compact(target, topic, CompactionSettings(dry_run=True))
    assert (len(planned.groups), planned.segments_before, planned.removed) == (1, 4, 0)
    assert SealedHistory.of(target, topic).segment_count == 4
    done = compact(target, topic, CompactionSettings())
    assert (done.failures, done.segments_before, done.segments_after) == ([], 4, 1)
    assert read(broker, topic) == before
    assert read_topic(target.spark, topic, connection=broker.connection).count() == 201
    # What is done stays done: nothing is left to do.
    assert compact(target, topic, CompactionSettings()).groups == []
    broker.restart()
    assert read(broker, topic) == before


def test_of_a_key_the_latest_message_stays(target: Target, broker: BrokerProcess) -> None:
    topic = "/default/compacted"
    send(broker, topic, [("a", b"a1"), ("b", b"b1"), (None, b"no key"), ("c", b"c1")], compacted=True)
    send(broker, topic, [("a", b"a2"), ("c", b"")], compacted=True)
    broker.publish(topic, [b"in the tail"], compaction_key="b")
    done = compact(target, topic, CompactionSettings(keep_latest=True, small_bytes=0))
    assert (done.failures, done.removed, done.segments_after) == ([], 2, 2)
    left = [(1, b"b1"), (2, b"no key"), (4, b"a2"), (5, b""), (6, b"in the tail")]
    assert read(broker, topic) == left
    rows = read_topic(target.spark, topic, connection=broker.connection, columns=["offset", "payload"])
    assert sorted((row.offset, bytes(row.payload)) for row in rows.collect()) == left
    assert consume(broker, topic, len(left)) == [payload for _, payload in left]
    # A tombstone goes when it is old enough and alone.
    aged = CompactionSettings(keep_latest=True, small_bytes=0, tombstones_older_than=timedelta(0))
    assert compact(target, topic, aged).removed == 1
    assert read(broker, topic) == [each for each in left if each[0] != 5]


def test_partitions_are_compacted_by_routing_key(target: Target, broker: BrokerProcess) -> None:
    topic = "/default/keyed"
    for number in range(3):
        with broker.client() as client, client.producer(topic, partitions=2) as producer:
            for key in "abcdef":
                producer.send(b"%s %d" % (key.encode(), number), key=key)
        for part in range(2):
            broker.seal(f"{topic}-part-{part}")
    done = compact(target, topic, CompactionSettings(keep_latest=True, by=KeyKind.ROUTING_KEY))
    assert (done.failures, done.removed, done.segments_after) == ([], 12, 2)
    left = sorted(payload for _, payload in read(broker, topic))
    assert left == [b"%s 2" % key.encode() for key in "abcdef"]


def test_nothing_is_left_of_an_erased_key(target: Target, broker: BrokerProcess) -> None:
    topic = "/default/erased"
    send(broker, topic, [("alice", SECRET + b" 1"), ("bob", b"bob 1"), ("alice", SECRET + b" 2")])
    send(broker, topic, [("bob", b"bob 2")])
    broker.publish(topic, [SECRET + b" 3"], attributes={"user": "alice"})
    broker.publish(topic, [SECRET + b" 4"], key="alice")
    half = erase(target, topic, ErasureSettings(keys=["alice"], seal=False))
    assert (half.removed, half.found_afterwards) == (2, 1)
    assert "are not sealed" in half.failures[0]
    assert holding(broker.data_dir, SECRET) != []

    done = erase(target, topic, ErasureSettings(keys=["alice"], attributes=[("user", "alice")]))
    assert (done.failures, done.removed, done.found_afterwards) == ([], 2, 0)
    assert [len(each.old) for each in done.groups] == [1]
    assert all(set(each.old.values()).isdisjoint(each.new.values()) for each in done.groups)
    assert read(broker, topic) == [(1, b"bob 1"), (3, b"bob 2")]
    assert consume(broker, topic, 2) == [b"bob 1", b"bob 2"]
    assert holding(broker.data_dir, SECRET) == []
    broker.restart()
    broker.publish(topic, [b"later"])
    assert read(broker, topic) == [(1, b"bob 1"), (3, b"bob 2"), (6, b"later")]


def test_erasing_by_nothing_is_refused() -> None:
    with pytest.raises(Rejected, match="0 keys and attributes"):
        ErasureSettings()


def test_a_damaged_segment_is_left_as_it_is(target: Target, broker: BrokerProcess) -> None:
    topic = "/default/damaged"
    for number in range(2):
        send(broker, topic, [("k", b"%d" % number)])
    damaged = Path(SealedHistory.of(target, topic).parts[topic][0].place)
    good = damaged.read_bytes()
    bad = bytearray(good)
    bad[len(bad) // 3] ^= 1
    damaged.write_bytes(bad)
    done = compact(target, topic, CompactionSettings())
    assert len(done.failures) == 1
    assert "is damaged and is left as it is" in done.failures[0]
    assert damaged.read_bytes() == bad
    damaged.write_bytes(good)
    assert compact(target, topic, CompactionSettings()).segments_after == 1


def holding(folder: Path, text: bytes) -> list[str]:
    """Files with these bytes in them, but for those that compress: payloads so small are stored as they are."""
    return [str(path) for path in folder.rglob("*") if path.is_file() and text in path.read_bytes()]
