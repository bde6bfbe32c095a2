"""Syncs that die, race or meet maintenance: what is in the tables afterwards is exact."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess
from spark_harness.lakehouse import Lake, drain

from pydanube.kernel.errors import Rejected
from pydanube.spark.decoding import RegistrySchemas
from pydanube.spark.failures import SPARK_ERRORS
from pydanube.spark.lakehouse.pacing import Pace, SyncRun, passes
from pydanube.spark.lakehouse.stretches import CommitBounds
from pydanube.spark.lakehouse.sync import LakehouseSync, SyncOptions


class Died(Exception):
    """In place of a process that was killed."""


class Meddled:
    """A real table, where something happens around a call."""

    def __init__(
        self, table: Any, method: str, before: Callable[[], None], after: Callable[[], None]
    ) -> None:
        self._table, self._method, self._before, self._after = table, method, before, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._table, name)
        if name != self._method:
            return found

        def call(*arguments: Any) -> Any:
            self._before()
            answer = found(*arguments)
            self._after()
            return answer

        return call


def nothing() -> None:
    pass


def die() -> None:
    raise Died


@pytest.fixture(params=["iceberg", "delta"])
def lake(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    made = Lake(spark, tmp_path, request.param)
    yield made
    made.close()


def test_death_around_a_commit_neither_loses_nor_repeats(lake: Lake, broker: BrokerProcess) -> None:
    topic, name = f"/default/death-{lake.format}", f"death_{lake.format}"
    with broker.client() as client:
        subject = client.schemas.register(f"death-{lake.format}", '"int"', "avro")
    fields = {"schema_id": subject.schema_id, "schema_version": 1}
    bad = b"\x80"  # a number that does not end
    broker.publish(topic, [b"\x02", bad, b"\x04", bad, b"\x06", bad], **fields)
    place = lake.place(name)

    def sync(
        method: str = "", before: Callable[[], None] = nothing, after: Callable[[], None] = nothing
    ) -> Any:
        return LakehouseSync(
            lake.spark,
            broker.connection,
            topic,
            Meddled(place.open(lake.spark), method, before, after),  # type: ignore[arg-type]
            schemas=RegistrySchemas(broker.connection, f"death-{lake.format}"),
            quarantine=place.beside("_quarantine").open(lake.spark),
            options=SyncOptions(bounds=CommitBounds(rows=4)),
        )

    # What makes no row is in quarantine already, the rows are not.
    with pytest.raises(Died):
        sync("append", before=die).step()
    assert len(lake.rows(f"{name}_quarantine")) == 2
    # Both are there, and nobody was told.
    with pytest.raises(Died):
        sync("append", after=die).step()
    assert drain(sync()) == 1
    assert [(row["_offset"], row["value"]) for row in lake.rows(name)] == [(0, 1), (2, 2), (4, 3)]
    quarantined = lake.rows(f"{name}_quarantine")
    # The first death left rows; the second one came before they were settled, and its own count.
    assert {row["_offset"] for row in quarantined} == {1, 3, 5}
    assert [row["_offset"] for row in quarantined] == [1, 3, 5]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_segment_that_vanishes_under_the_reader_is_read_again(lake: Lake, broker: BrokerProcess) -> None:
    topic, name = f"/default/vanish-{lake.format}", f"vanish_{lake.format}"
    broker.publish(topic, [b"%d" % n for n in range(10)])
    broker.seal(topic)
    with broker.client() as client:
        (segment,) = client.history.segments(topic, 0)
    file, aside = Path(segment.place), lake.folder / "aside"
    place = lake.place(name)
    drain(lake.sync(broker, topic, bounds=CommitBounds(rows=3), start="latest"))
    times = [1, 2]

    def take_away() -> None:
        if times and file.exists():
            times.pop()
            file.rename(aside)

    table = Meddled(place.open(lake.spark), "schema", take_away, nothing)
    sync = LakehouseSync(lake.spark, broker.connection, topic, table)  # type: ignore[arg-type]
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        if aside.exists():
            aside.rename(file)
        waits.append(seconds)
        return False

    with pytest.raises(SPARK_ERRORS) as failed:
        sync.step()
    assert passes(failed.value)
    aside.rename(file)
    SyncRun(sync, Pace(), wait=wait).once()
    assert waits[0] == 1.0
    assert [row["payload"] for row in lake.rows(name)] == [b"%d" % n for n in range(10)]


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_maintenance_by_others_does_not_confuse_a_sync(lake: Lake, broker: BrokerProcess) -> None:
    topic, name = f"/default/tidy-{lake.format}", f"tidy_{lake.format}"
    broker.publish(topic, [b"%d" % n for n in range(20)])
    broker.publish("/default/other", [b""])
    sync = lake.sync(broker, topic, bounds=CommitBounds(rows=10))
    assert drain(sync) == 2
    sync.close()
    # By others, who know nothing of syncs: what the last commit said about itself is gone from the log.
    table = lake.table(name)
    lake.spark.sql(
        f"CALL {table.name.partition('.')[0]}.system.rewrite_data_files(table => 'db.{name}', "
        "options => map('rewrite-all', 'true'))"
    )
    table.expire(0)
    assert table.commits(9) == []
    broker.publish(topic, [b"20"])
    assert drain(sync) == 1
    assert [row["_offset"] for row in lake.rows(name)] == list(range(21))
    with pytest.raises(Rejected, match="holds /default/tidy"):
        LakehouseSync(lake.spark, broker.connection, "/default/other", lake.table(name)).plan()
