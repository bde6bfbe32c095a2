"""Topics in Spark: the data source `danube`, typed rows, lakehouse tables, pipelines and maintenance jobs.

Importing this makes the format known to the session that is active; `register` does so for any other.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Let a session read and write `format("danube")`."""
    from pydanube.spark import registration  # noqa: PLC0415 - parts of this package do without Spark

    registration.register(spark)


def _register_with_active_session() -> None:
    # Without PySpark there is no session; an executor has PySpark, but none either.
    pyspark = sys.modules.get("pyspark.sql")
    session = pyspark and pyspark.SparkSession.getActiveSession()
    if session:
        register(session)


_register_with_active_session()
