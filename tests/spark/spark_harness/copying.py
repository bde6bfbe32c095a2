"""Streaming queries that copy files and a topic into topics, and a Spark process of its own for them that can be killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pydanube.spark.session import SparkSettings, open_session
from pydanube.spark.source.draining import run_until_caught_up
from spark_harness.dying_sink import DyingSource

FROM_FILES = "/default/from-files"
FROM_TOPIC = "/default/from-topic"
SOURCE = "/default/source"
MESSAGES_PER_BATCH = 120
SMALL_BATCHES = {"spark.sql.execution.arrow.maxRecordsPerBatch": "20"}
"""So that a task has several of them to be killed between."""
SECONDS_MAX = 240


class CopyingProcess:
    """Runs `main` below until it ends or is killed."""

    def __init__(self, url: str, folder: Path, tasks: int) -> None:
        """`tasks`: over how many the rows of files are spread."""
        harness = Path(__file__).parent.parent
        paths = [str(harness), os.environ.get("PYTHONPATH", "")]
        self._log = folder / "spark.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spark_harness.copying", url, str(folder), str(tasks)],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def wait(self) -> bool:
        """Whether it got to its end; afterwards nothing of it is left."""
        try:
            return self._process.wait(SECONDS_MAX) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(SECONDS_MAX)

    def log_tail(self, characters: int = 5_000) -> str:
        return self._log.read_text(errors="replace")[-characters:]


def main(url: str, folder: Path, tasks: int) -> None:
    spark = open_session(
        SparkSettings(
            master="local[2]",
            config={
                "spark.sql.shuffle.partitions": "2",
                **SMALL_BATCHES,
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            },
        )
    )
    copies = Copies(spark, url, folder)
    copies.copy_files(tasks)
    copies.copy_topic()


class Copies:
    """The queries, in a session that has `SMALL_BATCHES`."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        spark.dataSource.register(DyingSource)
        self._spark = spark
        self._url = url
        self._folder = folder

    def copy_files(self, tasks: int) -> None:
        files = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._folder / "files"))
        spread = files.selectExpr("value AS payload", "LEFT(value, 2) AS key").repartition(tasks)
        self._writer(spread, FROM_FILES).trigger(availableNow=True).start().awaitTermination()

    def copy_topic(self) -> None:
        messages = (
            self._spark.readStream.format("danube")
            .options(url=self._url, topic=SOURCE, maxMessagesPerTrigger=MESSAGES_PER_BATCH)
            .load()
        )
        run_until_caught_up(self._writer(messages.select("payload", "routing_key"), FROM_TOPIC))

    def _writer(self, rows: DataFrame, topic: str) -> DataStreamWriter:
        label = topic.rpartition("/")[2]
        jvm = self._spark._jvm
        assert jvm is not None
        return (
            rows.writeStream.format("dying")
            .options(url=self._url, topic=topic, fatalPoints=str(self._folder / "points"), label=label)
            .option("jvm", jvm.java.lang.ProcessHandle.current().pid())
            .option("checkpointLocation", str(self._folder / label))
        )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
