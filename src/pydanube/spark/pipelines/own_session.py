"""A session that only one pipeline has: its views and settings are nobody else's."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from pydanube.kernel.errors import Rejected
from pydanube.spark.pipelines.environment import filled_all


def own_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """Beside a session, with its settings and those of the pipeline.

    Raises:
        Rejected: a setting counts when Spark starts only, and has another value.
    """
    own = spark.newSession()
    for name, value in spark.conf.getAll.items():
        if own.conf.get(name, None) != value and own.conf.isModifiable(name):
            own.conf.set(name, value)
    for name, value in filled_all(settings).items():
        if own.conf.get(name, None) == value:
            continue
        if not own.conf.isModifiable(name) and not name.startswith("spark.sql.catalog."):
            raise Rejected(f"{name} counts when Spark starts, and Spark is running: set it there")
        own.conf.set(name, value)
    return own
