"""Making Spark know the format `danube`."""

from pyspark.sql import SparkSession

from pydanube.spark.source.data_source import DanubeDataSource


def register(spark: SparkSession) -> None:
    """Let this session read and write `format("danube")`, and hand its filters to it."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(DanubeDataSource)
