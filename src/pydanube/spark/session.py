"""A Spark session with what this package needs."""

import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and what it loads."""

    master: str = "local[*]"
    app_name: str = "danube"
    packages: Sequence[str] = ()
    """Maven coordinates, found by Spark's own package resolution."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Wins over everything set here."""


def open_session(settings: SparkSettings | None = None) -> SparkSession:
    """The session of these settings; the one that is there, if there is one."""
    settings = settings or SparkSettings()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    scratch = Path(tempfile.mkdtemp(prefix="danube-spark-"))
    builder = SparkSession.builder.master(settings.master).appName(settings.app_name)
    config = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **settings.config,
    }
    if settings.packages:
        config["spark.jars.packages"] = ",".join(settings.packages)
    for name, value in config.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    shutil.rmtree(scratch, ignore_errors=True)
    return session
