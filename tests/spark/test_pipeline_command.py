"""`danube pipeline run`: a process that is killed in the middle; the next run, looked at and stopped from elsewhere."""

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess

from pydanube.cli.main import main
from pydanube.spark.pipelines.run_state import RunDirectory

SECONDS_MAX = 240
DANUBE = str(Path(sys.executable).with_name("danube"))
PIPELINE = """
name: numbers
source:
  topic: /default/numbers
  max_messages_per_trigger: 50
  decode: {{schema_file: number.json, schema_type: json_schema}}
steps:
  - map: {{square: n * n}}
  - select: [n, square]
sink: {{topic: {{topic: /default/squares, key: n}}}}
quarantine: {{delta: {folder}/bad}}
spark: {{spark.driver.extraJavaOptions: "-XX:TieredStopAtLevel=1", spark.sql.shuffle.partitions: "1"}}
"""


class Pipelines:
    """The command, with a state directory of its own."""

    def __init__(self, broker: BrokerProcess, folder: Path) -> None:
        self._state = folder / "state"
        self._broker = broker
        self._log = folder / "run.log"
        self.file = folder / "pipeline.yml"
        self.file.write_text(PIPELINE.format(folder=folder))
        (folder / "number.json").write_text(
            '{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}'
        )

    def start(self) -> subprocess.Popen[bytes]:
        """In a process with a Spark of its own."""
        with self._log.open("ab") as log:
            return subprocess.Popen([DANUBE, *self._run()], stdout=log, stderr=log)

    def run(self) -> Result:
        """In this process, with the session that is there, until it is stopped."""
        return CliRunner().invoke(main, self._run())

    def _run(self) -> list[str]:
        where = ["--broker", self._broker.url, "--master", "local[2]", "--state-dir", str(self._state)]
        return ["pipeline", "run", str(self.file), *where]

    def say(self, *words: str) -> str:
        command = [DANUBE, "pipeline", *words, "--state-dir", str(self._state)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def status(self) -> str:
        return str(json.loads(self.say("status", "numbers", "-o", "json"))["status"])

    def recorded(self) -> str:
        """The status, without a process."""
        return RunDirectory(self._state).find("numbers").status

    def log(self) -> str:
        return self._log.read_text(errors="replace")


def wait_until(condition: Callable[[], bool], is_alive: Callable[[], bool], pipelines: Pipelines) -> None:
    until = time.monotonic() + SECONDS_MAX
    while not condition():
        assert is_alive(), pipelines.log()
        assert time.monotonic() < until, pipelines.log()
        time.sleep(0.1)


def squares(broker: BrokerProcess) -> Counter[int]:
    found: Counter[int] = Counter()
    with broker.client() as client:
        if "/default/squares" not in client.history.topics("default"):
            return found
        with client.reader("/default/squares", start="earliest", end="latest") as reader:
            for batch in reader.batches():
                found.update(json.loads(payload)["square"] for payload in batch.column("payload").to_pylist())
    return found


@pytest.mark.timeout(600)
def test_killed_in_the_middle_and_started_again_each_row_is_there_once(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    pipelines = Pipelines(broker, tmp_path)
    broker.publish("/default/numbers", [b'{"n": %d}' % n if n % 10 else b"ten" for n in range(100)])
    process = pipelines.start()
    try:
        # Not all of it is there, and some batch is under way.
        wait_until(lambda: bool(squares(broker)), lambda: process.poll() is None, pipelines)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(SECONDS_MAX)
    assert pipelines.status() == "died"

    def look_and_stop() -> tuple[str, str, str]:
        try:
            broker.restart()
            wait_until(
                lambda: len(squares(broker)) == 90 and pipelines.recorded() == "running",
                lambda: pipelines.recorded() != "failed",
                pipelines,
            )
            seen = pipelines.status(), pipelines.say("list")
        finally:
            said = pipelines.say("stop", "numbers", "--timeout", str(SECONDS_MAX))
        return *seen, said

    with ThreadPoolExecutor(1) as elsewhere:
        looking = elsewhere.submit(look_and_stop)
        ran = pipelines.run()
    assert ran.exit_code == 0, ran.output
    status, listed, said = looking.result()
    assert (status, "running" in listed, said) == ("running", True, "pipeline numbers is stopped\n")
    assert squares(broker) == Counter(n * n for n in range(100) if n % 10)
    bad = DeltaTable(f"{tmp_path}/bad").to_pyarrow_table().column("offset").to_pylist()
    assert sorted(bad) == list(range(0, 100, 10))
