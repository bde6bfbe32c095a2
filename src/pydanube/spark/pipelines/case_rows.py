"""Rows of tests, as JSON can say them, as DataFrames with the types a source has."""

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StructType

from pydanube.kernel.errors import Rejected
from pydanube.spark.decoding import KEPT, table_schema
from pydanube.spark.pipelines.checked_yaml import unknown
from pydanube.spark.pipelines.compiling import Decoded, decoded, schemas_of
from pydanube.spark.pipelines.document import Source
from pydanube.spark.pipelines.frames import Surroundings
from pydanube.spark.source.data_source import ROW

Given = Sequence[dict[str, Any]]

FIRST_TIME: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""When the first message of a test is published and appended, unless it says so itself; others come a second apart."""
_STRICT: Final = {"mode": "FAILFAST"}


def case_source(spark: SparkSession, source: Source, given: Given, around: Surroundings) -> Decoded:
    """The rows of a test in place of a source.

    Of topics and Kafka, rows are messages: those with a `payload` are decoded as in a run, others say the columns that
    decoding would have made.
    """
    if source.topic is None and source.topics is None and source.kafka is None:
        return decoded(source, _typed(spark, given, source.columns), around)
    messages = [_message(row, number, source) for number, row in enumerate(given)]
    raw = [row for row in messages if "payload" in row]
    if source.decode is None:
        if len(raw) < len(messages):
            raise Rejected("a message of a test has no payload: give one, or decode to have other columns")
        return Decoded(_typed(spark, [_encoded(row) for row in raw], ROW))
    made = decoded(source, _typed(spark, [_encoded(row) for row in raw], ROW), around)
    ready = [row for row in messages if "payload" not in row]
    if not ready:
        return made
    columns = StructType([ROW[name] for name in KEPT])
    typed = table_schema(schemas_of(source, source.decode, around))
    rows = _typed(spark, ready, StructType([*columns, *typed]))
    return Decoded(made.rows.unionByName(rows, allowMissingColumns=True), made.quarantined)


def plain(value: Any) -> Any:
    """As JSON says it: YAML makes times and dates of some texts."""
    match value:
        case datetime():
            return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
        case date():
            return value.isoformat()
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
    return value


def _message(row: dict[str, Any], number: int, source: Source) -> dict[str, Any]:
    topic = source.topic or (
        source.topics[0] if source.topics else source.kafka.topic if source.kafka else ""
    )
    at = (FIRST_TIME + timedelta(seconds=number)).isoformat()
    return {
        "topic": topic,
        "partition": 0,
        "offset": number,
        "publish_time": at,
        "append_time": at,
        "producer_name": "test",
        **plain(row),
    }


def _encoded(row: dict[str, Any]) -> dict[str, Any]:
    """Bytes are base64 in JSON. A text is its UTF-8, anything else the JSON that says it."""
    payload = row["payload"]
    text = payload if isinstance(payload, str) else json.dumps(payload)
    return {**row, "payload": base64.b64encode(text.encode()).decode()}


def _typed(spark: SparkSession, given: Given, columns: StructType | str | None) -> DataFrame:
    rows = [plain(row) for row in given]
    if columns is None:
        if not rows:
            raise Rejected("no rows are given, so their columns are unknown: give `columns` of the source")
        return spark.read.option("inferTimestamp", True).json(
            spark.sparkContext.parallelize([json.dumps(row) for row in rows], 1)
        )
    schema = _schema(columns) if isinstance(columns, str) else columns
    for row in rows:
        for name in row:
            if name not in schema.names:
                raise Rejected(unknown("column", name, schema.names))
    texts = spark.createDataFrame([(json.dumps(row),) for row in rows], "text STRING").coalesce(1)
    return texts.select(fn.from_json("text", schema, _STRICT).alias("row")).select("row.*")


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType), "columns make a row"
    return schema
