"""Topics into Iceberg and Delta tables, with a real broker, read back by programs without Spark."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess
from spark_harness.lakehouse import Lake, drain

from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.spark.lakehouse.status import look_at
from pydanube.spark.lakehouse.stretches import CommitBounds
from pydanube.spark.lakehouse.table import Layout


@pytest.fixture(params=["iceberg", "delta"])
def lake(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lake]:
    made = Lake(spark, tmp_path, request.param)
    yield made
    made.close()


def test_history_and_tail_become_one_table_without_gap_or_duplicate(
    lake: Lake, broker: BrokerProcess
) -> None:
    topic = f"/default/raw-{lake.format}"
    name = f"raw_{lake.format}"
    broker.publish(topic, [b"%d" % n for n in range(40)], attributes={"k": "v"}, partitions=2)
    broker.seal(f"{topic}-part-0")
    broker.publish(topic, [b"%d" % n for n in range(40, 50)])
    sync = lake.sync(
        broker,
        topic,
        bounds=CommitBounds(rows=30),
        layout=Layout(partition_by=("days(_append_time)",), sort_by=("_offset",)),
    )
    planned = sync.plan()
    assert (planned[2], len(planned[1])) == (50, 30)
    assert drain(sync) == 2
    sync.tidy()
    broker.publish(topic, [b"last"])
    assert sync.step().lag == 0
    sync.close()
    rows = lake.rows(name)
    assert sorted(row["payload"] for row in rows) == sorted([*(b"%d" % n for n in range(50)), b"last"])
    for number in (0, 1):
        offsets = [row["_offset"] for row in rows if row["_topic_partition"] == number]
        assert offsets == list(range(len(offsets)))
    assert dict(rows[0]["_attributes"]) == {"k": "v"}
    assert {row["_topic"] for row in rows} == {topic}
    assert lake.duckdb_count(name) == 51
    table = lake.table(name)
    assert table.properties()["danube.topic"] == topic
    newest, *older = table.commits(10)
    assert [one.commit.number for one in (newest, *older)] == [3, 2, 1]
    assert sum(newest.commit.end.values()) == 51
    assert older[0].commit.end == newest.commit.start
    status = look_at(broker.connection, table, 1)
    assert (status["topic"], status["lag"], status["commits"][0]["rows"]) == (topic, 0, 1)
    # Another process goes on where this one ended.
    assert lake.sync(broker, topic).step().commit is None


V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "amount", "type": "int"}, {"name": "who", "type": {"type": "record", "name": "W", "fields": [{"name": "n", "type": "string"}]}}],
}  # fmt: skip
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "who", "type": {"type": "record", "name": "W", "fields": [{"name": "age", "type": ["null", "int"], "default": None}, {"name": "n", "type": "string"}]}},
        {"name": "total", "aliases": ["amount"], "type": "long"},
    ],
}  # fmt: skip


def register(broker: BrokerProcess, topic: str, schema: object) -> dict[str, int]:
    """What messages of the new version say about themselves."""
    subject = topic.rpartition("/")[2]
    with broker.client() as client:
        made = client.schemas.register(subject, json.dumps(schema), "avro")
        client.schemas.set_mode(subject, "none")
        if made.version == 1:
            with client.producer(topic):
                client.schemas.configure_topic(topic, subject, policy="none")
        return {"schema_id": made.schema_id, "schema_version": made.version}


def zigzag(*numbers: int) -> bytes:
    return bytes(number * 2 for number in numbers)


def test_columns_follow_the_schema_and_bad_messages_go_beside(lake: Lake, broker: BrokerProcess) -> None:
    topic, name = f"/default/typed-{lake.format}", f"typed_{lake.format}"
    first = register(broker, topic, V1)
    broker.publish(topic, [zigzag(5, 1) + b"a", b"bad", zigzag(6, 1) + b"b"], **first)
    sync = lake.sync(broker, topic, typed=True)
    outcome = sync.step()
    assert outcome.commit is not None
    assert outcome.commit.quarantined == 1
    second = register(broker, topic, V2)
    # note "x", who (no age, "c"), total 7
    broker.publish(topic, [b"\x02\x02x" + b"\x00\x02c" + zigzag(7)], **second)
    broker.publish(topic, [b"unnamed"])
    assert drain(sync) == 1
    sync.close()
    rows = lake.rows(name)
    renamed = lake.format == "iceberg"  # Delta needs column mapping for that, which few readers know
    assert [row["_offset"] for row in rows] == [0, 2, 3]
    assert [row["total"] for row in rows] == ([5, 6, 7] if renamed else [None, None, 7])
    assert ("amount" in rows[0]) is not renamed
    assert [row["note"] for row in rows] == [None, None, "x"]
    assert [row["who"] for row in rows] == [
        {"n": "a", "age": None},
        {"n": "b", "age": None},
        {"n": "c", "age": None},
    ]
    bad = lake.rows(f"{name}_quarantine")
    assert [(row["_offset"], row["payload"]) for row in bad] == [(1, b"bad"), (4, b"unnamed")]
    assert "names no schema" in bad[1]["_reason"]
    third = register(broker, topic, {**V2, "fields": [{"name": "total", "type": "string"}]})
    broker.publish(topic, [b"\x02y"], **third)
    with pytest.raises(
        Rejected, match="column total of the table is bigint, the schema now says string"
    ) as no:
        lake.sync(broker, topic, typed=True).step()
    assert no.value.code is ErrorCode.SCHEMA_INCOMPATIBLE
    assert drain(lake.sync(broker, topic, typed=True, on_incompatible="new-column")) == 1
    assert lake.rows(name)[-1]["total_string"] == "y"
    assert len(lake.rows(name)) + len(lake.rows(f"{name}_quarantine")) == 6


def test_two_syncs_at_once_cannot_double(lake: Lake, broker: BrokerProcess) -> None:
    topic, name = f"/default/two-{lake.format}", f"two_{lake.format}"
    broker.publish(topic, [b"%d" % n for n in range(22)])
    lake.sync(broker, topic, bounds=CommitBounds(rows=10)).step()
    conflicts: list[DanubeError] = []

    def run(rows: int) -> None:
        sync = lake.sync(broker, topic, bounds=CommitBounds(rows=rows))
        for _ in range(30):
            try:
                if sync.step().commit is None:
                    break
            except Conflict as conflict:
                conflicts.append(conflict)
        sync.close()

    threads = [Thread(target=run, args=(rows,)) for rows in (5, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [row["_offset"] for row in lake.rows(name)] == list(range(22))
    # One whose plan is out of date is told so, also without a race.
    sync, other = lake.sync(broker, topic), lake.sync(broker, topic)
    broker.publish(topic, [b"22"])
    progress, stretch, _ = sync.plan()
    assert other.step().commit is not None
    late = sync._commit_for(progress, stretch)
    with pytest.raises(Conflict, match="another sync writes to"):
        lake.table(name).append(lake.table(name).frame(), late)
    assert len(lake.rows(name)) == 23
