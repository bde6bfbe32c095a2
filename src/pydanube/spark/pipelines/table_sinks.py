"""A batch into a table or into files, each row once."""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from pydanube.spark.pipelines.batch import Batch
from pydanube.spark.pipelines.catalogs import iceberg_catalog
from pydanube.spark.pipelines.document import FilesSink, TableSink
from pydanube.spark.pipelines.partitioning import Partitioning, parse_partitioning

QUERY_PROPERTY: Final = "danube.pipeline.query"
BATCH_PROPERTY: Final = "danube.pipeline.batch"
"""Of Iceberg's snapshots: which batch a commit holds."""


def append_iceberg(df: DataFrame, sink: TableSink, role: str, batch: Batch, *, overwrite: bool) -> None:
    """One commit, which says which batch it is."""
    spark = df.sparkSession
    name = sink.table
    iceberg_catalog(spark, name, sink.warehouse)
    query = f"{batch.query}/{role}"
    if not spark.catalog.tableExists(name):
        _create_iceberg(df, name, sink)
    elif batch.is_first and _last_batch(df, name, query) >= batch.number:
        return
    writer = df.writeTo(name).options(
        **{
            "mergeSchema": "true",
            f"snapshot-property.{QUERY_PROPERTY}": query,
            f"snapshot-property.{BATCH_PROPERTY}": str(batch.number),
        }
    )
    if overwrite:
        writer.overwrite(fn.lit(True))
    else:
        writer.append()


def append_delta(df: DataFrame, sink: TableSink, role: str, batch: Batch, *, overwrite: bool) -> None:
    """One commit; Delta itself leaves out a batch it has."""
    writer = (
        df.write.format("delta")
        .mode("overwrite" if overwrite else "append")
        .option("txnAppId", f"{batch.query}/{role}")
        .option("txnVersion", str(batch.number))
        .option("mergeSchema", "true")
        .options(**sink.properties)
    )
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    if "/" in sink.table:
        writer.save(sink.table)
    else:
        writer.saveAsTable(sink.table)


def write_files(df: DataFrame, sink: FilesSink, batch: Batch, *, overwrite: bool) -> None:
    """A directory for each batch, which a second try replaces; with all there is to know, one directory."""
    place = sink.path if overwrite else f"{sink.path}/danube_batch={batch.query[:8]}-{batch.number:06}"
    writer = df.write.format("parquet").mode("overwrite")
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    writer.save(place)


def _create_iceberg(df: DataFrame, name: str, sink: TableSink) -> None:
    spark = df.sparkSession
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {name.rpartition('.')[0]}")
    writer = df.limit(0).writeTo(name).using("iceberg").tableProperty("write.spark.accept-any-schema", "true")
    for key, value in sink.properties.items():
        writer = writer.tableProperty(key, value)
    divisions = [_division(parse_partitioning(text)) for text in sink.partition_by]
    if divisions:
        writer = writer.partitionedBy(*divisions)
    writer.create()


def _last_batch(df: DataFrame, name: str, query: str) -> int:
    """The last one of this query that the table holds, as far as its snapshots remember; -1 for none."""
    snapshots = df.sparkSession.table(f"{name}.snapshots")
    number = fn.col("summary")[BATCH_PROPERTY].cast("bigint")
    (found,) = (
        snapshots.where(fn.col("summary")[QUERY_PROPERTY] == query)
        .agg(fn.max(number).alias("last"))
        .collect()
    )
    return -1 if found["last"] is None else int(found["last"])


def _division(made: Partitioning) -> Column:
    column = fn.col(made.column)
    match made.transform:
        case None:
            return column
        case "bucket":
            return fn.partitioning.bucket(made.buckets, column)
    transforms = {
        "years": fn.partitioning.years,
        "months": fn.partitioning.months,
        "days": fn.partitioning.days,
        "hours": fn.partitioning.hours,
    }
    return transforms[made.transform](column)
