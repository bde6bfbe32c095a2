"""What every question is asked with: a broker, a session, and rounds in which contestants take turns."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.results import Results, Sample
from bench.servers import ServerError, free_address, running
from bench.spark.process_tree import cpu_seconds, settle
from pydanube.spark import register
from pydanube.spark.connection import Connection
from pydanube.spark.session import SparkSettings, open_session

CATALOG = "lake"
PROGRAM = str(Path(sys.executable).with_name("danube"))


@dataclass(frozen=True, slots=True)
class Turn:
    """One contestant in one case."""

    case: str
    contestant: str
    take: Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Workbench:
    spark: SparkSession
    connection: Connection
    admin_address: str
    broker_pid: int
    scratch: Path
    rounds: int
    results: Results
    say: Callable[[str], None]

    def alternate(self, scenario: str, turns: Sequence[Turn]) -> None:
        """Everyone once to get warm, then once per round."""
        for number in range(self.rounds + 1):
            for turn in turns:
                which = f"round {number} of {self.rounds}" if number else "warming up"
                self.say(f"{scenario}, {which}: {turn.case}, {turn.contestant}")
                settle(self.broker_pid)
                sample = turn.take()
                if number:
                    self.results.add(scenario, turn.case, turn.contestant, sample)

    def timed(self, messages: int, work: Callable[[], object]) -> Sample:
        """Wall clock, and the CPU of everyone: this process, Spark, its workers and the broker."""
        cpu, wall = cpu_seconds(os.getpid()), time.perf_counter()
        work()
        return Sample(messages, time.perf_counter() - wall, cpu_seconds(os.getpid()) - cpu)

    def publish(self, topic: str, tables: Iterable[pa.Table]) -> None:
        with self.connection.client() as client, client.producer(topic) as producer:
            for table in tables:
                producer.send_table(table)

    def seal(self, topic: str) -> None:
        self._administer("topics", "seal", topic)

    def delete(self, topic: str) -> None:
        self._administer("topics", "delete", topic)

    def _administer(self, *words: str) -> None:
        done = subprocess.run(
            [PROGRAM, *words, "--admin-addr", self.admin_address], check=False, capture_output=True, text=True
        )
        if done.returncode:
            raise ServerError(f"{' '.join(words)}: {done.stderr.strip()}")


@contextmanager
def open_workbench(
    scratch: Path, *, rounds: int, results: Results, say: Callable[[str], None]
) -> Iterator[Workbench]:
    address, admin_address = free_address(), free_address()
    command = [PROGRAM, "broker", "--mode", "standalone", "--data-dir", str(scratch / "data")]
    command += ["--broker-addr", address, "--admin-addr", admin_address, "--prom-exporter", "off"]
    say("starting the broker")
    with running(command, scratch / "broker.log") as pid:
        say("starting Spark")
        spark = open_session(
            SparkSettings(
                app_name="danube bench",
                libraries=("iceberg",),
                config={
                    f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
                    f"spark.sql.catalog.{CATALOG}.type": "hadoop",
                    f"spark.sql.catalog.{CATALOG}.warehouse": str(scratch / "warehouse"),
                    "spark.driver.memory": "2g",
                    # Both sides of a comparison by one and the same plan.
                    "spark.sql.adaptive.enabled": "false",
                },
                log=scratch / "spark.log",
            )
        )
        register(spark)
        connection = Connection(f"danube://{address}")
        try:
            yield Workbench(spark, connection, admin_address, pid, scratch, rounds, results, say)
        finally:
            spark.stop()
