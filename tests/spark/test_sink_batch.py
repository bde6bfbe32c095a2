"""Writing DataFrames to topics."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_harness.broker_process import BrokerProcess

import pydanube.spark
from pydanube.spark.failures import sentence

COLUMNS = ["partition", "offset", "routing_key", "attributes", "publish_time", "schema_id", "payload"]


@pytest.fixture(scope="module", autouse=True)
def registered(spark: SparkSession) -> None:
    pydanube.spark.register(spark)


def write(frame: DataFrame, broker: BrokerProcess, **options: Any) -> None:
    frame.write.format("danube").options(url=broker.url, **options).mode("append").save()


def read(broker: BrokerProcess, topic: str) -> dict[str, list[dict[str, Any]]]:
    """The messages of each partition, in order."""
    found: dict[str, list[dict[str, Any]]] = {}
    with broker.client() as client:
        for part in client.partitions(topic):
            with client.reader(part, start="earliest", end="latest") as reader:
                found[part] = [row for batch in reader.batches() for row in batch.to_pylist()]
    return found


def test_every_column_reaches_the_message(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = spark.sql(
        "SELECT id, CAST(id AS STRING) AS payload, CONCAT('key-', id % 5) AS key, "
        "IF(id % 2 = 0, MAP('a', CAST(id AS STRING)), NULL) AS attributes, "
        "TIMESTAMP_MILLIS(1700000000000 + id) AS publish_time, 7 AS schema_id, CAST(2 AS BIGINT) AS schema_version "
        "FROM RANGE(0, 100, 1, 2)"
    ).drop("id")
    write(frame, broker, topic="/default/columns", partitions=3, compression="zstd", producerName="nightly")
    by_part = read(broker, "/default/columns")
    assert list(by_part) == [f"/default/columns-part-{number}" for number in range(3)]
    rows = [row for rows in by_part.values() for row in rows]
    assert sorted(int(row["payload"]) for row in rows) == list(range(100))
    for row in rows:
        number = int(row["payload"])
        assert row["routing_key"] == f"key-{number % 5}"
        assert dict(row["attributes"] or []) == ({} if number % 2 else {"a": str(number)})
        assert row["publish_time"] == datetime.fromtimestamp(1_700_000_000 + number / 1000, UTC)
        assert (row["schema_id"], row["schema_version"]) == (7, 2)
        assert row["producer_name"].startswith("nightly-")
    keys = [{row["routing_key"] for row in rows} for rows in by_part.values()]
    assert sum(map(len, keys)) == 5, "a key has one partition"


def test_rows_name_topics_and_partitions_themselves(spark: SparkSession, broker: BrokerProcess) -> None:
    broker.publish("/default/chosen", [], partitions=2)
    frame = spark.sql(
        "SELECT IF(id < 6, '/default/chosen', '/default/unsplit') AS topic, CAST(IF(id < 6, id % 2, 0) AS INT) AS "
        "partition, CAST(CAST(id AS STRING) AS BINARY) AS payload FROM RANGE(0, 10, 1, 1)"
    )
    write(frame, broker)
    by_part = {
        part: [int(row["payload"]) for row in rows]
        for topic in ("/default/chosen", "/default/unsplit")
        for part, rows in read(broker, topic).items()
    }
    assert by_part == {
        "/default/chosen-part-0": [0, 2, 4],
        "/default/chosen-part-1": [1, 3, 5],
        "/default/unsplit": [6, 7, 8, 9],
    }
    again = spark.read.format("danube").options(url=broker.url, topic="/default/unsplit").load()
    write(again, broker, topic="/default/copy")
    assert [row["payload"] for row in read(broker, "/default/copy")["/default/copy"]] == [
        b"6",
        b"7",
        b"8",
        b"9",
    ]


def test_a_write_with_an_id_can_be_repeated(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = spark.sql("SELECT CAST(id AS STRING) AS payload FROM RANGE(0, 20, 1, 2)")
    for tasks in (2, 1):
        write(frame.coalesce(tasks), broker, topic="/default/once", writeId="load-2024-01-01")
    write(frame, broker, topic="/default/once", writeId="load-2024-01-02")
    rows = read(broker, "/default/once")["/default/once"]
    assert sorted(int(row["payload"]) for row in rows) == sorted([*range(20), *range(20)])


def test_what_cannot_be_written_is_told(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = spark.sql("SELECT IF(id < 3, 'x', NULL) AS payload FROM RANGE(0, 4, 1, 1)")
    with pytest.raises(PySparkException) as refused:
        write(frame, broker, topic="/default/refused")
    assert sentence(refused.value).startswith(
        "column 'payload' is null in row 4 of 4 that were to be written"
    )


def test_overwriting_is_refused(spark: SparkSession, broker: BrokerProcess) -> None:
    frame = spark.sql("SELECT 'x' AS payload")
    with pytest.raises(PySparkException) as refused:
        frame.write.format("danube").options(url=broker.url, topic="/default/x").mode("overwrite").save()
    assert "topics cannot be overwritten" in sentence(refused.value)
