"""What other shells know of pipelines that run."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pydanube.cli.main import main
from pydanube.kernel.errors import Conflict, Rejected
from pydanube.spark.pipelines.run_state import RunDirectory, RunRecord

RUN = """
import os, signal, sys, time
from pathlib import Path
from pydanube.spark.pipelines.run_state import RunDirectory, RunRecord
record = RunRecord(name="orders", status="running", pid=os.getpid(), file="f", master="m", checkpoint="c", started=1.0)
with RunDirectory(Path(sys.argv[1])).claim(record) as running:
    def end(number, frame):
        running.update(status="stopped")
        sys.exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if "deaf" in sys.argv else end)
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path / "state")


def started(directory: RunDirectory, *words: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(directory.path), *words], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_a_run_is_seen_once_and_stopped_from_elsewhere(directory: RunDirectory) -> None:
    process = started(directory)
    try:
        found = directory.find("orders")
        assert (found.status, found.pid) == ("running", process.pid)
        with (
            pytest.raises(Conflict, match=f"running already by process {process.pid}"),
            directory.claim(found),
        ):
            pass
        listed = CliRunner().invoke(main, ["pipeline", "list", "--state-dir", str(directory.path)])
        assert "running" in listed.output
        stopped = CliRunner().invoke(main, ["pipeline", "stop", "orders", "--state-dir", str(directory.path)])
        assert (stopped.exit_code, stopped.output) == (0, "pipeline orders is stopped\n")
        assert process.wait(30) == 0
    finally:
        ended(process)
    with pytest.raises(Rejected, match="is not running: it is stopped"):
        directory.stop("orders", seconds=1, force=False)


def test_one_that_does_not_listen_is_killed_only_if_asked_to(directory: RunDirectory) -> None:
    process = started(directory, "deaf")
    try:
        with pytest.raises(Conflict, match=r"has not ended within 0.2 s: wait longer by --timeout"):
            directory.stop("orders", seconds=0.2, force=False)
        # Nobody has waited for the process yet, so its number is not free.
        assert directory.stop("orders", seconds=0.2, force=True).status == "died"
        assert process.wait(30) == -signal.SIGKILL
    finally:
        ended(process)


def test_one_that_was_killed_is_known_to_be_dead(directory: RunDirectory) -> None:
    ended(started(directory))
    assert directory.find("orders").status == "died"
    record: RunRecord = directory.find("orders")
    with directory.claim(record) as again:
        again.update(status="running")
        assert [each.status for each in directory.all()] == ["running"]


def test_unknown_names(directory: RunDirectory) -> None:
    result = CliRunner().invoke(main, ["pipeline", "status", "orders", "--state-dir", str(directory.path)])
    assert (result.exit_code, "unknown pipeline 'orders': none has run" in result.output) == (1, True)
    ended(started(directory))
    with pytest.raises(Rejected, match="unknown pipeline 'odrers': did you mean 'orders'"):
        directory.find("odrers")
    shown = CliRunner().invoke(
        main, ["pipeline", "status", "orders", "-o", "json", "--state-dir", str(directory.path)]
    )
    assert '"status": "died"' in shown.output
