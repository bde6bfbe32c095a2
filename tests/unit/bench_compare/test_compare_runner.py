"""Contestants take turns; who cannot be installed or started is absent with its reason, and the rest go on."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.compare.contestants.contestant import Contestant, Durability, Load, Service
from bench.compare.outputs import Outcome
from bench.compare.runner import Runner
from bench.compare.samples import Absence
from bench.compare.serving import ServerProcess
from bench.compare.tools import InstallError
from bench.compare.turn import Effort, Findings, Turn
from bench.compare.workloads import Workload
from bench.servers import ServerError


class IdleService(Service):
    def publish(self, load: Load) -> Outcome:
        return Outcome(load.count, 1.0)

    consume = fan_out = latency = publish


class Player(Contestant):
    peer = "player"
    settings = ""
    durability = Durability.SYNCED
    reads = True

    def __init__(self, name: str, *, installs: bool = True, starts: bool = True) -> None:
        self.name = name
        self._installs = installs
        self._starts = starts

    def install(self) -> str:
        if not self._installs:
            raise InstallError("no such package")
        return f"{self.name} 1.0"

    @contextmanager
    def serve(self, folder: Path) -> Iterator[Service]:
        assert not list(folder.iterdir())
        (folder / "data").write_text(self.name)
        if not self._starts:
            raise ServerError("port in use")
        yield IdleService(ServerProcess(pid=os.getpid(), start_seconds=0.0))


class Stage:
    """Runs one workload and writes down who was on it."""

    def __init__(self, folder: Path, *, rounds: int) -> None:
        self.story: list[str] = []
        self.findings = Findings()
        self.workload = Workload("work", "Work", self._perform)
        self.runner = Runner(
            folder,
            Effort(rounds=rounds, seconds=1, catch_up_messages=1, idle_topics=1, idle_connections=1),
            self.findings,
            measure_disk=lambda: self.story.append("disk"),
            say=lambda _: None,
            settle=lambda: None,
        )

    def _perform(self, turn: Turn) -> None:
        self.story.append(turn.contestant.name)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, rounds=2)


def test_contestants_take_turns_round_after_round(stage: Stage) -> None:
    stage.runner.run([stage.workload], [Player("a"), Player("b")])
    assert stage.story == ["disk", "a", "b", "disk", "a", "b"]


def test_everyone_starts_in_an_empty_folder_that_is_gone_afterwards(stage: Stage) -> None:
    stage.runner.run([stage.workload], [Player("a")])
    assert not list(stage.runner.scratch.iterdir())


def test_who_cannot_be_installed_is_absent_from_everything(stage: Stage) -> None:
    versions = stage.runner.install([Player("a", installs=False), Player("b")])
    assert versions == {"b": "b 1.0"}
    assert stage.findings.absences == [Absence("", "", "a", "not installed: no such package")]


def test_a_server_that_does_not_start_is_absent_and_not_tried_again(stage: Stage) -> None:
    stage.runner.run([stage.workload], [Player("a", starts=False), Player("b")])
    assert stage.story == ["disk", "b", "disk", "b"]
    assert stage.findings.absences == [Absence("work", "", "a", "server failed: port in use")]
