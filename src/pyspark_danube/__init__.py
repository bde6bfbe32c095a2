"""Spark looks into packages with such a name for formats: so it knows `danube` without any import."""

from pydanube.spark.source.data_source import DanubeDataSource as DefaultSource

__all__ = ["DefaultSource"]
