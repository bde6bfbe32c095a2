"""Segments in an Iceberg table, where they are."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess
from spark_harness.lakehouse import Lake, metadata_of

from pydanube.kernel.errors import Rejected
from pydanube.spark.lakehouse.register import register_segments

TOPIC = "/default/lent"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    made = Lake(spark, tmp_path, "iceberg")
    yield made
    made.close()


def test_segments_become_files_of_a_table_and_later_ones_follow(lake: Lake, broker: BrokerProcess) -> None:
    place = lake.place("lent")
    for number in (0, 1):
        payloads = [b"%d" % n for n in range(number * 25, number * 25 + 25)]
        broker.publish(TOPIC, payloads, key=f"key-{number}", attributes={"k": "v"}, partitions=2)
    for number in (0, 1):
        broker.seal(f"{TOPIC}-part-{number}")
    planned = register_segments(lake.spark, broker.connection, TOPIC, place, dry_run=True)
    assert (planned.segments, planned.messages) == (2, 50)
    assert register_segments(lake.spark, broker.connection, TOPIC, place) == planned
    broker.publish(TOPIC, [b"%d" % n for n in range(50, 70)])
    for number in (0, 1):
        broker.seal(f"{TOPIC}-part-{number}")
    assert register_segments(lake.spark, broker.connection, TOPIC, place).messages == 20
    assert register_segments(lake.spark, broker.connection, TOPIC, place).segments == 0
    expected = sorted(b"%d" % n for n in range(70))
    path = lake.folder / "db" / "lent"
    # Nothing was copied.
    assert not list(path.rglob("*.parquet"))
    frame = place.open(lake.spark).frame()
    rows = frame.where("offset >= 0 AND producer_name IS NOT NULL").collect()
    assert sorted(bytes(row.payload) for row in rows) == expected
    assert {row.partition for row in rows} == {0, 1}
    assert sum(row.attributes == {"k": "v"} for row in rows) == 50
    assert frame.where("partition = 1 AND offset = 3").count() == 1
    found = StaticTable.from_metadata(metadata_of(path)).scan().to_arrow()
    assert sorted(found["payload"].to_pylist()) == expected
    # Filters on times would be wrong: Iceberg takes the milliseconds of row groups for microseconds.
    assert not {"append_time", "publish_time"} & set(frame.columns)
    assert sum(place.open(lake.spark).commits(1)[0].commit.end.values()) == 70
    with pytest.raises(Rejected, match="was not made for the segments of"):
        register_segments(lake.spark, broker.connection, f"{TOPIC}-part-0", place)
