"""Pipelines that run: topics in, topics and tables out, bad messages apart."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess
from spark_harness.checkpoints import forget_from

from pydanube.spark.pipelines import (
    Decode,
    Pipeline,
    Sink,
    Source,
    Step,
    Window,
    load_pipeline,
    run_pipeline,
)

SMALL = {"spark.sql.shuffle.partitions": "1", "spark.databricks.delta.snapshotPartitions": "1"}
ORDER = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "region": {"type": "string"},
        "amount": {"type": "number"},
        "at": {"type": "string", "format": "date-time"},
    },
    "required": ["id"],
}


def pipeline_of(folder: Path, text: str) -> Pipeline:
    file = folder / "pipeline.yml"
    file.write_text(text)
    return load_pipeline(file)


def order(number: int, amount: float, region: str = "eu", minute: int = 0) -> bytes:
    at = f"2026-03-01T10:{minute:02}:00Z"
    return json.dumps({"id": number, "amount": amount, "region": region, "at": at}).encode()


def messages(broker: BrokerProcess, topic: str) -> list[dict[str, Any]]:
    """What is in a topic, and its attributes and key."""
    rows: list[dict[str, Any]] = []
    with broker.client() as client:
        for part in client.partitions(topic):
            with client.reader(part, start="earliest", end="latest") as reader:
                for batch in reader.batches():
                    rows += batch.select(["routing_key", "attributes", "payload"]).to_pylist()
    return rows


def payloads(broker: BrokerProcess, topic: str) -> list[Any]:
    return [json.loads(row["payload"]) for row in messages(broker, topic)]


def test_decoded_filtered_and_mapped_rows_go_to_a_topic_and_bad_messages_to_another(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    with broker.client() as client:
        client.schemas.register("orders-in", json.dumps(ORDER), "json_schema")
    broker.publish("/default/in", [order(1, 10), b"not json", order(2, 0), order(3, 7.5, "us")], key="k")
    pipeline = pipeline_of(
        tmp_path,
        f"""
        name: orders_clean
        broker: {broker.url}
        source:
          topic: /default/in
          max_messages_per_trigger: 3
          decode: {{subject: orders-in, on_error: quarantine}}
        steps:
          - filter: amount > 0
          - map: {{cents: "CAST(amount * 100 AS BIGINT)"}}
          - select: [id, region, cents]
        sink:
          topic: {{topic: /default/out, key: region}}
        quarantine:
          topic: /default/bad
        """,
    )
    outcome = run_pipeline(spark, pipeline, checkpoint=tmp_path / "checkpoint", once=True)
    assert outcome.progress is not None
    assert (outcome.was_stopped, outcome.progress.rows, outcome.progress.lag) == (False, 4, 0)
    assert outcome.progress.batch == 1, "three messages, then one"
    assert [(row["routing_key"], json.loads(row["payload"])) for row in messages(broker, "/default/out")] == [
        ("eu", {"id": 1, "region": "eu", "cents": 1000}),
        ("us", {"id": 3, "region": "us", "cents": 750}),
    ]
    (bad,) = messages(broker, "/default/bad")
    attributes = dict(bad["attributes"])
    assert (bad["payload"], bad["routing_key"]) == (b"not json", "k")
    assert attributes["x-quarantine-topic"] == "/default/in"
    assert attributes["x-quarantine-offset"] == "1"
    assert "JSON" in attributes["x-quarantine-reason"]

    forget_from(tmp_path / "checkpoint", 1)
    broker.publish("/default/in", [order(4, 1)])
    run_pipeline(spark, pipeline, checkpoint=tmp_path / "checkpoint", once=True)
    assert [row["id"] for row in payloads(broker, "/default/out")] == [1, 3, 4], "each once"
    assert len(messages(broker, "/default/bad")) == 1


def test_two_topics_are_joined_and_enriched_into_an_iceberg_table_each_row_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    schema = tmp_path / "order.json"
    schema.write_text(json.dumps(ORDER))
    (tmp_path / "naming.py").write_text(
        "def shout(df, column):\n    from pyspark.sql import functions as fn\n"
        "    return df.withColumn(column, fn.upper(column))\n"
    )
    spark.createDataFrame(
        [("eu", "Europe"), ("us", "America")], "region STRING, region_name STRING"
    ).coalesce(1).write.format("delta").save(str(tmp_path / "regions"))
    # Sent twice, a bad one, one that nobody pays, one in time and one too late.
    broker.publish("/default/join-orders", [order(1, 10), order(1, 10), b"{", order(2, 5, "us"), order(3, 1)])
    broker.publish(
        "/default/join-payments",
        [order(1, 10, minute=20), order(2, 5, minute=59), order(3, 1, minute=5)],
    )
    pipeline = pipeline_of(
        tmp_path,
        f"""
        name: paid_orders
        broker: {broker.url}
        spark: {json.dumps(SMALL)}
        sources:
          orders:
            topic: /default/join-orders
            decode: {{schema_file: order.json, schema_type: json_schema}}
            watermark: {{column: at, delay: 30m}}
          payments:
            topic: /default/join-payments
            decode: {{schema_file: order.json, schema_type: json_schema, on_error: fail}}
            watermark: {{column: at, delay: 30m}}
          regions:
            table: {{format: delta, table: {tmp_path}/regions}}
            static: true
        steps:
          - {{from: orders, dedupe: {{by: [id], within: 30m, time: at}}}}
          - join: {{with: payments, on: [id], within: 30m}}
          - enrich: {{with: regions, on: [region], columns: [region_name]}}
          - function: {{name: "naming:shout", args: {{column: region_name}}}}
          - sql: SELECT id, region_name, amount, payments_at AS paid_at FROM input
        sink:
          iceberg:
            table: pipeline_lake.shop.paid
            warehouse: {tmp_path}/lake
            partition_by: [days(paid_at), "bucket(4, id)"]
        quarantine:
          delta: {tmp_path}/bad
        """,
    )
    checkpoint = tmp_path / "checkpoint"
    run_pipeline(spark, pipeline, checkpoint=checkpoint, once=True, folder=tmp_path)
    forget_from(checkpoint, 0)
    run_pipeline(spark, pipeline, checkpoint=checkpoint, once=True, folder=tmp_path)
    session = spark.newSession()
    session.conf.set("spark.sql.catalog.pipeline_lake", "org.apache.iceberg.spark.SparkCatalog")
    session.conf.set("spark.sql.catalog.pipeline_lake.type", "hadoop")
    session.conf.set("spark.sql.catalog.pipeline_lake.warehouse", f"{tmp_path}/lake")
    rows = session.table("pipeline_lake.shop.paid").orderBy("id").collect()
    assert [(row.id, row.region_name, row.amount, row.paid_at.minute) for row in rows] == [
        (1, "EUROPE", 10.0, 20),
        (3, "EUROPE", 1.0, 5),
    ]
    (bad,) = DeltaTable(f"{tmp_path}/bad").to_pyarrow_table().to_pylist()
    assert (bad["topic"], bad["offset"], bad["payload"]) == ("/default/join-orders", 2, b"{")


def test_windows_of_a_stream_add_up_over_batches_and_replace_a_table(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    (tmp_path / "order.json").write_text(json.dumps(ORDER))
    source = Source(
        topic="/default/windowed",
        decode=Decode(schema_file="order.json", schema_type="json_schema", on_error="fail"),
    )
    window = Window(
        size="10m", by=["region"], time="at", aggregate={"orders": "count(*)", "total": "sum(amount)"}
    )
    made = Pipeline(
        name="windowed",
        source=source,
        steps=[Step(window=window)],
        sink=Sink(delta=f"{tmp_path}/totals", mode="complete"),
        spark=SMALL,
    )

    def totals(*published: bytes) -> dict[tuple[str, int], tuple[int, float]]:
        broker.publish("/default/windowed", published)
        run_pipeline(
            spark,
            made,
            connection=broker.connection,
            checkpoint=tmp_path / "checkpoint",
            once=True,
            folder=tmp_path,
        )
        rows = DeltaTable(f"{tmp_path}/totals").to_pyarrow_table().to_pylist()
        return {(row["region"], row["window_start"].minute): (row["orders"], row["total"]) for row in rows}

    assert totals(order(1, 1), order(2, 2, minute=9), order(3, 4, minute=10)) == {
        ("eu", 0): (2, 3.0),
        ("eu", 10): (1, 4.0),
    }
    assert totals(order(4, 8, "us"), order(5, 16, minute=5))["eu", 0] == (3, 19.0)
    with pytest.raises(
        PySparkException, match=r"a payload cannot be decoded: topic /default/windowed, partition 0, offset 5"
    ):
        totals(b"{")
