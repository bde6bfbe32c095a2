"""Reading topics in batches: the data source and the fast path give the same rows."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from spark_harness.broker_process import BrokerProcess

import pydanube.spark
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.reading import available, read_ranges, read_topic
from pydanube.spark.topics import resolve

ORDERS = "/default/batch-orders"
SPLIT = "/default/batch-split"
PARTS = [f"{SPLIT}-part-{number}" for number in (0, 1)]


@pytest.fixture(scope="module", autouse=True)
def topics(spark: SparkSession, broker: BrokerProcess) -> None:
    """Of each topic, some messages in two segments and some that only the broker has."""
    pydanube.spark.register(spark)
    for first in (0, 100, 200):
        payloads = [b"%d" % number for number in range(first, first + 100)]
        broker.publish(ORDERS, payloads, key=f"key-{first}", attributes={"first": str(first)})
        for key in range(0, 100, 10):
            broker.publish(SPLIT, payloads[key : key + 10], partitions=2, key=str(key))
        if first < 200:
            for name in (ORDERS, *PARTS):
                broker.seal(name)


def source(spark: SparkSession, broker: BrokerProcess, **options: str) -> DataFrame:
    return spark.read.format("danube").options(url=broker.url, **options).load()


def payloads(frame: DataFrame) -> list[int]:
    return sorted(int(bytes(row.payload)) for row in frame.select("payload").collect())


def test_all_columns_of_sealed_and_unsealed_messages(spark: SparkSession, broker: BrokerProcess) -> None:
    rows = source(spark, broker, topic=ORDERS)
    fast = read_topic(spark, ORDERS, connection=broker.connection)
    assert rows.columns == fast.columns == MESSAGE_SCHEMA.names
    found = rows.orderBy("offset").collect()
    assert found == fast.orderBy("offset").collect()
    assert [(row.offset, int(bytes(row.payload))) for row in found] == [
        (number, number) for number in range(300)
    ]
    assert {(row.topic, row.partition, row.schema_id) for row in found} == {(ORDERS, 0, None)}
    assert (found[250].routing_key, found[250].attributes) == ("key-200", {"first": "200"})
    assert abs(found[250].append_time.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds() < 600


def test_topics_with_partitions_and_patterns(spark: SparkSession, broker: BrokerProcess) -> None:
    wanted = sorted([*range(300), *range(300)])
    both = source(
        spark, broker, topicPattern="/default/batch-(orders|spl.*)", columns="topic,partition,payload"
    )
    assert payloads(both) == wanted
    counts = {
        (row.topic, row.partition): row["count"]
        for row in both.groupBy("topic", "partition").count().collect()
    }
    assert counts[ORDERS, 0] == counts[SPLIT, 0] + counts[SPLIT, 1] == 300
    assert payloads(read_topic(spark, [ORDERS, SPLIT], connection=broker.connection)) == wanted


def test_positions(spark: SparkSession, broker: BrokerProcess) -> None:
    """Each as an option of the source and as an argument of the fast path."""
    start, end = {ORDERS: 50}, {ORDERS: {"0": 250}}
    rows = source(
        spark, broker, topic=ORDERS, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end)
    )
    assert payloads(rows) == list(range(50, 250))
    assert payloads(read_topic(spark, ORDERS, connection=broker.connection, start=start, end=end)) == list(
        range(50, 250)
    )
    with broker.client() as client:
        middle = next(iter(client.history.segments(ORDERS, 100))).min_append_ms
    moment = datetime.fromtimestamp(middle / 1000, UTC)
    assert payloads(source(spark, broker, topic=ORDERS, startingTimestamp=moment.isoformat())) == list(
        range(100, 300)
    )
    assert payloads(source(spark, broker, topic=ORDERS, endingTimestamp=str(middle))) == list(range(100))


def test_a_frame_keeps_its_offsets_and_any_projection(spark: SparkSession, broker: BrokerProcess) -> None:
    broker.publish("/default/growing", [b"1", b"2"])
    reader = spark.read.format("danube").option("url", broker.url)
    by_schema = reader.schema("payload BINARY, offset BIGINT").load("/default/growing")
    frames = [
        reader.load("/default/growing"),
        by_schema,
        read_topic(spark, "/default/growing", connection=broker.connection),
    ]
    assert [frame.count() for frame in frames] == [2, 2, 2]
    broker.publish("/default/growing", [b"3"])
    broker.seal("/default/growing")
    assert [payloads(frame) for frame in frames] == [[1, 2]] * 3
    assert [tuple(row) for row in by_schema.orderBy("offset").collect()] == [(b"1", 0), (b"2", 1)]
    with broker.client() as client:
        ranges = available(client, resolve(client, ["/default/growing"]))
    assert payloads(read_ranges(spark, broker.connection, ranges, columns=["payload"])) == [1, 2, 3]


def test_filters_spare_segments(spark: SparkSession, broker: BrokerProcess) -> None:
    """What a filter excludes is not asked for: with these files away it would be read, and not found."""
    with broker.client() as client:
        first, second = client.history.segments(ORDERS)
    rows = source(spark, broker, topics=f"{ORDERS},{SPLIT}", readFrom="store")
    away = Path(first.place).rename(f"{first.place}.away")
    try:
        kept = rows.where(f"topic = '{ORDERS}' AND partition = 0 AND offset >= 100 AND offset <> 299")
        assert payloads(kept) == list(range(100, 299))
        late = datetime.fromtimestamp(second.min_append_ms / 1000, UTC)
        assert payloads(
            rows.where("partition = 0").where(rows.append_time >= late).where(f"topic = '{ORDERS}'")
        ) == list(range(100, 300))
        with pytest.raises(PySparkException, match="cannot be read from the store"):
            rows.where(f"topic = '{ORDERS}'").count()
        assert payloads(source(spark, broker, topic=ORDERS)) == list(range(300)), (
            "the broker has a copy in memory"
        )
    finally:
        away.rename(first.place)


def test_a_view_in_sql(spark: SparkSession, broker: BrokerProcess) -> None:
    spark.sql(f"CREATE TEMPORARY VIEW orders USING danube OPTIONS (topic '{ORDERS}', url '{broker.url}')")
    try:
        [row] = spark.sql(
            "SELECT count(*) AS n, max(offset) AS last FROM orders WHERE routing_key = 'key-100'"
        ).collect()
        assert (row.n, row.last) == (100, 199)
    finally:
        spark.catalog.dropTempView("orders")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topik": ORDERS}, "unknown option 'topik': did you mean topic?"),
        ({"topic": "/default/none"}, "/default/none does not exist"),
        (
            {"topic": ORDERS, "startingOffsets": f'{{"{ORDERS}": 301}}'},
            f"offset 301 of {ORDERS} is not there yet",
        ),
        (
            {"topic": SPLIT, "startingOffsets": f'{{"{SPLIT}": 1}}'},
            "has 2 partitions: give the offset of each",
        ),
    ],
)
def test_what_cannot_be_read_is_refused(
    spark: SparkSession, broker: BrokerProcess, options: dict[str, str], text: str
) -> None:
    with pytest.raises(PySparkException) as refused:
        source(spark, broker, **options).count()
    assert text in str(refused.value)
