"""Streaming queries write each row once, whoever is killed, and whenever; `exactly_once.py` tries more of it."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess, StartBroker
from spark_harness.checkpoints import forget_from
from spark_harness.copied_rows import BATCHES, die, kill_broker_at, prepare, stored_payloads
from spark_harness.copying import FROM_FILES, FROM_TOPIC, SMALL_BATCHES, Copies
from spark_harness.dying_sink import FatalPoints

SECONDS_MAX = 600
"""A start of Spark takes most of the time, much of it on a busy machine."""


@pytest.fixture
def broker(start_broker: StartBroker) -> BrokerProcess:
    """One to be killed."""
    return start_broker()


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[None]:
    for name, value in SMALL_BATCHES.items():
        spark.conf.set(name, value)
    yield
    for name in SMALL_BATCHES:
        spark.conf.unset(name)


@pytest.mark.timeout(SECONDS_MAX)
@pytest.mark.usefixtures("small_batches")
def test_spark_and_the_broker_are_killed(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> None:
    """Spark in the middle of a batch, whose rows then come to another number of tasks; the broker in the middle of
    a batch; and a batch comes again that was stored when the checkpoint did not know yet.
    """
    rows = prepare(broker, tmp_path)
    points = FatalPoints(tmp_path / "points")
    points.plan_death("from-files-batch0-before1")
    die(broker, tmp_path, points, tasks=2)
    killer = kill_broker_at(broker, points, "from-files-batch2-before1")
    copies = Copies(spark, broker.url, tmp_path)
    copies.copy_files(tasks=3)
    killer.join(SECONDS_MAX)
    assert stored_payloads(broker, FROM_FILES) == Counter(rows)
    copies.copy_topic()
    forget_from(tmp_path / "from-topic", BATCHES - 1)
    copies.copy_topic()
    assert stored_payloads(broker, FROM_TOPIC) == Counter(rows)
