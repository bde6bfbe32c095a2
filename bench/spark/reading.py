"""Reading a topic whose history is sealed, next to Spark's own Parquet reader on the same files."""

from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from bench.results import Sample
from bench.spark.messages import PER_MEBIBYTE, random_messages
from bench.spark.workbench import Turn, Workbench
from pydanube.spark.reading import read_topic
from pydanube.spark.source.data_source import ROW

SCENARIO = "reading"
RAW, FAST, SOURCE = "Spark's Parquet reader", "read_topic", 'format("danube")'
FULL, AGGREGATE, NARROW = "all columns", "aggregate of payloads", "narrow columns"
TOPIC = "/default/bench-reading"
STORED = [name for name in ROW.names if name not in ("topic", "partition")]


def run(bench: Workbench, megabytes: int) -> None:
    messages = megabytes * PER_MEBIBYTE
    bench.say(f"publishing {messages:,} messages of 1 KiB")
    bench.publish(TOPIC, random_messages(messages))
    bench.seal(TOPIC)
    with bench.connection.client() as client:
        places = [Path(segment.place).as_uri() for segment in client.history.segments(TOPIC, 0)]

    def raw(columns: list[str]) -> DataFrame:
        schema = StructType([ROW[name] for name in columns])
        return bench.spark.read.schema(schema).parquet(*places)

    def fast(columns: list[str]) -> DataFrame:
        return read_topic(bench.spark, TOPIC, connection=bench.connection, columns=columns)

    def source(columns: list[str]) -> DataFrame:
        options = {**bench.connection.options(), "topic": TOPIC, "columns": ",".join(columns)}
        return bench.spark.read.format("danube").options(**options).load()

    def turn(case: str, contestant: str) -> Turn:
        read = {RAW: raw, FAST: fast, SOURCE: source}[contestant]
        ask, columns = {
            FULL: (_all, STORED),
            AGGREGATE: (_aggregate, ["payload"]),
            NARROW: (_narrow, ["offset", "append_time"]),
        }[case]

        def take() -> Sample:
            # Planning counts: asking the broker what there is belongs to reading a topic.
            return bench.timed(messages, lambda: ask(read(columns), messages))

        return Turn(case, contestant, take)

    bench.alternate(
        SCENARIO,
        [turn(case, who) for case in (FULL, AGGREGATE, NARROW) for who in (RAW, FAST, SOURCE)],
    )
    bench.delete(TOPIC)


def _all(rows: DataFrame, messages: int) -> None:
    rows.write.format("noop").mode("overwrite").save()


def _aggregate(rows: DataFrame, messages: int) -> None:
    (total,) = rows.agg(F.count("*"), F.sum(F.crc32("payload"))).collect()
    assert total[0] == messages, f"{total[0]} of {messages} messages"


def _narrow(rows: DataFrame, messages: int) -> None:
    (last,) = rows.agg(F.max("offset"), F.max("append_time")).collect()
    assert last[0] == messages - 1, f"{last[0]} is not the last offset"
