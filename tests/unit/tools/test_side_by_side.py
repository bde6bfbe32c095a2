"""Commands at the same time: what is shown, when they fail, and what is left of them when they are interrupted."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "tools" / "side_by_side.py"


def start(*commands: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, str(SCRIPT), *commands], stdout=subprocess.PIPE, text=True)


def test_both_run_at_once_and_what_each_said_is_kept_together(tmp_path: Path) -> None:
    meeting = tmp_path / "meeting"
    os.mkfifo(meeting)
    with start(f"one=cat {meeting}; echo one ends", f"other=echo other begins; echo met > {meeting}") as done:
        assert done.communicate()[0].split("\n") == [
            "other begins", "", "==== one ====", "met", "one ends", "", "all passed", "",
        ]  # fmt: skip
    assert done.returncode == 0


@pytest.mark.parametrize("failing", [("a",), ("c",), ("a", "b"), ("b", "c")])
def test_one_that_fails_is_named_and_shown_last(failing: tuple[str, ...]) -> None:
    with start(*(f"{name}=echo {name} ran; exit {int(name in failing)}" for name in "abc")) as done:
        output = done.communicate()[0]
    assert done.returncode == 1
    assert output.splitlines()[-1] == f"FAILED: {', '.join(failing)}"
    shown = [line for line in output.splitlines() if line in ("a ran", "b ran")]
    assert shown == sorted(["a ran", "b ran"], key=lambda line: line[0] in failing)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_everything_they_started(tmp_path: Path, how: signal.Signals) -> None:
    fifos = [tmp_path / name for name in ("one", "other")]
    for fifo in fifos:
        os.mkfifo(fifo)
    commands = [f"{fifo.name}=exec 3> {fifo}; echo begun >&3; sleep 600; true" for fifo in fifos]
    with start(*commands) as process, fifos[0].open() as one, fifos[1].open() as other:
        assert [one.readline(), other.readline()] == ["begun\n", "begun\n"]
        process.send_signal(how)
        # They end when nobody is left who could write to them.
        assert [one.read(), other.read()] == ["", ""]
        process.communicate()
    assert process.returncode == 130
