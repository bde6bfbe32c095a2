"""A session that only one pipeline has: its views and settings are nobody else's."""

from collections.abc import Mapping
from contextlib import suppress

from pyspark.errors import AnalysisException
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
        if own.conf.get(name, None) != value:
            with suppress(AnalysisException):
                own.conf.set(name, value)
    for name, value in filled_all(settings).items():
        try:
            own.conf.set(name, value)
        except AnalysisException as error:
            # Spark adds words of its own to options of Java.
            if value not in (own.conf.get(name, None) or ""):
                raise Rejected(
                    f"{name} counts when Spark starts, and Spark is running: set it there"
                ) from error
    return own
