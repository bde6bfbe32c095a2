"""Tests inside pipelines, batch pipelines and what is told when they fail."""

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from pydanube.kernel.errors import Rejected
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.pipelines import (
    Case,
    Function,
    Pipeline,
    Sink,
    Source,
    Step,
    load_pipeline,
    pipeline_function,
    run_cases,
    run_pipeline,
)
from pydanube.spark.pipelines.document import FilesSink, FilesSource, JdbcTable
from pydanube.spark.pipelines.frames import kafka_messages

EXAMPLES = Path(__file__).parents[2] / "examples" / "pipelines"


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yml")), ids=lambda file: file.stem)
def test_the_examples_pass_their_own_tests(spark: SparkSession, file: Path) -> None:
    results = run_cases(spark, load_pipeline(file), folder=EXAMPLES)
    assert results
    assert [str(each) for result in results for each in result.differences] == []
    assert all(result.has_passed for result in results), results


def test_differences_are_told_row_by_row(spark: SparkSession) -> None:
    made = Pipeline(
        name="p",
        source=Source(
            files=FilesSource(path="x", format="json"), columns="id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"
        ),
        steps=[Step(filter="id < 10"), Step(map={"double": "id * 2.0D"})],
        sink=Sink(parquet="y"),
        tests=[
            Case(
                name="right",
                given=[{"id": 1, "at": "2026-01-01T00:00:00Z", "tags": ["a"]}, {"id": 11}],
                expect=[{"id": 1, "double": 2, "at": "2026-01-01T01:00:00+01:00", "tags": ["a"]}],
            ),
            Case(name="wrong", given=[{"id": 2}, {"id": 3}], expect=[{"id": 2, "double": 5}, {"id": 4}]),
            Case(name="mistyped", given=[{"idd": 2}], expect=[]),
        ],
    )
    right, wrong, mistyped = run_cases(spark, made)
    assert right.has_passed, right
    assert [str(each) for each in wrong.differences] == [
        "{id: 2, double: 5}: double is 4.0, expected 5",
        "missing: {id: 4}",
        "not expected: {id: 3, at: None, tags: None, double: 6.0}",
    ]
    assert mistyped.error == "unknown column 'idd': did you mean 'id'?"


def test_a_table_of_a_database_through_functions_into_files_and_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"jdbc:derby:{tmp_path}/db;create=true"
    spark.createDataFrame([(1, "a"), (2, "b")], "id INT, name STRING").write.jdbc(url, "people")

    @pipeline_function
    def only(df: DataFrame, least: int) -> DataFrame:
        return df.where(df["id"] >= least)

    people = Source(jdbc=JdbcTable(url=url, table="people"))
    steps = [
        Step(function=Function(name="only", args={"least": 2})),
        Step(select=["id", "upper(name) AS name"]),
    ]
    to_files = Pipeline(
        name="out", source=people, steps=steps, sink=Sink(parquet=FilesSink(path=f"{tmp_path}/files"))
    )
    assert run_pipeline(spark, to_files).progress is None
    back = Pipeline(
        name="back",
        source=Source(files=FilesSource(path="files", format="parquet"), static=True),
        sink=Sink(jdbc=JdbcTable(url=url, table="chosen")),
        steps=[Step(drop=["danube_batch"])],
    )
    run_pipeline(spark, back, folder=tmp_path)
    run_pipeline(spark, back, folder=tmp_path)
    assert [tuple(row) for row in spark.read.jdbc(url, "chosen").collect()] == [(2, "B"), (2, "B")]

    wrong = Pipeline(name="wrong", source=people, steps=[Step(filter="idd > 1")], sink=Sink(parquet="y"))
    with pytest.raises(
        Rejected, match=r"steps\[0\] \(filter\): A column, variable, or function parameter .*idd"
    ):
        run_pipeline(spark, wrong)


def test_records_of_kafka_are_messages(spark: SparkSession) -> None:
    records = spark.sql(
        "SELECT X'6b' AS key, X'7631' AS value, 'orders' AS topic, 3 AS partition, 7L AS offset, "
        "TIMESTAMP '2026-01-01 10:00:00' AS timestamp, 0 AS timestampType, "
        "array(named_struct('key', 'a', 'value', X'62')) AS headers"
    )
    found = kafka_messages(records)
    assert found.columns == MESSAGE_SCHEMA.names
    (row,) = found.collect()
    assert (row.topic, row.partition, row.offset, row.routing_key, bytes(row.payload), row.attributes) == (
        "orders", 3, 7, "k", b"v1", {"a": "b"},
    )  # fmt: skip
