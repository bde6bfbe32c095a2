"""Reading topics as streams: limits, checkpoints, growth, and history that is gone."""

import random
import sys
import time
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark_harness.broker_process import BrokerProcess

import pydanube.spark
from pydanube.spark.source.draining import run_until_caught_up

SECONDS_MAX = 60


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    pydanube.spark.register(spark)


class Stream:
    """A topic into files, with a checkpoint: each run goes on where the one before ended."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._files = str(folder / "files")
        self._checkpoint = str(folder / "checkpoint")

    def run(self, *, is_available_now: bool = False, **options: object) -> list[int]:
        """Until it has caught up; the number of rows of each batch."""
        reader = self._spark.readStream.format("danube").options(url=self._broker.url, **options)
        writer = reader.load().writeStream.option("checkpointLocation", self._checkpoint)
        writer = writer.option("path", self._files)
        query: StreamingQuery
        if is_available_now:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination(SECONDS_MAX)
        else:
            query = run_until_caught_up(writer)
        return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]

    def payloads(self) -> list[int]:
        rows = self._spark.read.parquet(self._files).select("payload").collect()
        return sorted(int(row.payload) for row in rows)


@pytest.fixture
def stream(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Stream:
    return Stream(spark, broker, tmp_path)


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def test_batches_keep_to_the_limit_and_a_restart_goes_on(stream: Stream, broker: BrokerProcess) -> None:
    broker.publish("/default/limited", numbers(0, 50))
    broker.seal("/default/limited")
    broker.publish("/default/limited", numbers(50, 70))
    options = {"topic": "/default/limited", "maxMessagesPerTrigger": 30, "endingOffsets": "latest"}
    assert stream.run(**options) == [30, 30, 10]
    broker.publish("/default/limited", numbers(70, 110))
    assert stream.run(**options) == [30, 10], "counted from the checkpoint, not from the beginning"
    assert stream.payloads() == list(range(110))


def test_available_now_takes_everything_whatever_the_limit(stream: Stream, broker: BrokerProcess) -> None:
    broker.publish("/default/now", numbers(0, 40))
    options = {"topic": "/default/now", "maxMessagesPerTrigger": 10, "availableNow": True}
    assert stream.run(is_available_now=True, **options) == [40]
    broker.publish("/default/now", numbers(40, 60))
    assert stream.run(is_available_now=True, topic="/default/now") == [20]
    assert stream.payloads() == list(range(60))


def test_bytes_are_limited_by_what_segments_say(stream: Stream, broker: BrokerProcess) -> None:
    broker.publish("/default/bytes", [b"%0500d" % number for number in range(40)])
    broker.seal("/default/bytes")
    broker.publish("/default/bytes", [b"%0500d" % number for number in range(40, 60)])
    options = {"topic": "/default/bytes", "maxBytesPerTrigger": 15_000, "endingOffsets": "latest"}
    assert stream.run(**options) == [30, 30]
    assert stream.payloads() == list(range(60))


def test_partitions_and_topics_that_appear_are_read_from_their_beginning(
    stream: Stream, broker: BrokerProcess
) -> None:
    options = {"topicPattern": "/default/growing-.*", "endingOffsets": "latest"}
    broker.publish("/default/growing-one", numbers(0, 10), partitions=1)
    assert sum(stream.run(**options)) == 10
    broker.publish("/default/growing-one-part-1", numbers(10, 20))
    broker.publish("/default/growing-two", numbers(20, 30))
    assert sum(stream.run(**options)) == 20
    assert stream.payloads() == list(range(30))


RETAINS_AT_ONCE = """
from pydanube.broker.housekeeping import Housekeeping
from pydanube.cli.main import main
usual = Housekeeping.__init__
Housekeeping.__init__ = lambda self, broker, clock, **_: usual(self, broker, clock, retention_check_ms=50)
main()
"""


class ForgetfulBroker(BrokerProcess):
    """Does not wait for minutes before it looks for what is too much."""

    program = (sys.executable, "-c", RETAINS_AT_ONCE)


def test_retention_that_overtakes_is_an_error_or_a_warning(spark: SparkSession, tmp_path: Path) -> None:
    topic = "/default/short"
    dice = random.Random(7)  # does not shrink when it is stored
    retention = {"size_mb": 1, "time_minutes": None}
    storage = {"wal": {"rotation": {"max_bytes": 1 << 20}}, "local_retention": retention}
    broker = ForgetfulBroker(tmp_path / "broker", {"storage": storage})
    broker.start()
    try:
        stream = Stream(spark, broker, tmp_path)
        broker.publish(topic, numbers(0, 10))
        assert sum(stream.run(topic=topic)) == 10
        for _ in range(3):
            broker.publish(topic, [dice.randbytes(1000) for _ in range(1000)])
            broker.seal(topic)
        oldest = _oldest_kept(broker, topic)
        with pytest.raises(StreamingQueryException) as failed:
            stream.run(topic=topic)
        wanted = f"{oldest - 10} messages of {topic} are gone: offset 10 was wanted, the oldest one kept is {oldest}"
        assert wanted in str(failed.value)
        assert sum(stream.run(topic=topic, failOnDataLoss=False)) == 3010 - oldest
    finally:
        broker.kill()


def _oldest_kept(broker: BrokerProcess, topic: str) -> int:
    """Once retention has done what it had to."""
    deadline = time.monotonic() + SECONDS_MAX
    with broker.client() as client:
        while time.monotonic() < deadline:
            oldest = client.history.storage(topic).start_offset
            if oldest >= 2010:
                return oldest
            time.sleep(0.05)
    raise AssertionError(f"nothing of {topic} was deleted:\n{broker.log_tail()}")
