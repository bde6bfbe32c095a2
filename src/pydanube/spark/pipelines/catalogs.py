"""Iceberg catalogs that are directories."""

from pyspark.sql import SparkSession

_CATALOG = "org.apache.iceberg.spark.SparkCatalog"


def iceberg_catalog(spark: SparkSession, table: str, warehouse: str | None) -> None:
    """Let the first part of a table's name be a catalog in this directory, unless the session knows it."""
    if warehouse is None:
        return
    name = f"spark.sql.catalog.{table.split('.', maxsplit=1)[0]}"
    if spark.conf.get(name, None) is None:
        spark.conf.set(name, _CATALOG)
        spark.conf.set(f"{name}.type", "hadoop")
        spark.conf.set(f"{name}.warehouse", warehouse)
