"""Writing rows to a topic, all of them on stable storage, next to the native client with the same messages."""

from itertools import count

from pyspark.sql import DataFrame

from bench.results import Sample
from bench.spark.messages import PER_MEBIBYTE, numbered_messages, numbered_payload
from bench.spark.workbench import Turn, Workbench

SCENARIO = "writing"
CASE = "rows of 1 KiB"
CLIENT, SINK, SPARK_ALONE = "native client alone", 'write.format("danube")', "Spark, rows thrown away"


def run(bench: Workbench, megabytes: int) -> None:
    messages = megabytes * PER_MEBIBYTE
    numbers = count(1)
    tables = list(numbered_messages(messages))

    def rows() -> DataFrame:
        return bench.spark.range(messages).select(numbered_payload("id").alias("payload"))

    def sink(topic: str) -> None:
        rows().write.format("danube").options(**bench.connection.options()).mode("append").save(topic)

    def into_topic(contestant: str) -> Sample:
        topic = f"/default/bench-writing-{next(numbers)}"
        write = sink if contestant == SINK else lambda topic: bench.publish(topic, tables)
        sample = bench.timed(messages, lambda: write(topic))
        with bench.connection.client() as client:
            stored = client.history.storage(topic).next_offset
        assert stored == messages, f"{stored} of {messages} messages stored"
        bench.delete(topic)
        return sample

    bench.alternate(
        SCENARIO,
        [
            Turn(CASE, CLIENT, lambda: into_topic(CLIENT)),
            Turn(CASE, SINK, lambda: into_topic(SINK)),
            Turn(CASE, SPARK_ALONE, lambda: bench.timed(messages, lambda: _throw_away(rows()))),
        ],
    )


def _throw_away(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
