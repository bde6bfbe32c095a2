"""Brings workloads and contestants together: one server at a time, the contestants in turn, round after round."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from bench.compare.contestants.contestant import Contestant
from bench.compare.tools import InstallError
from bench.compare.turn import Effort, Findings, Turn
from bench.compare.workloads import Workload
from bench.servers import ServerError


@dataclass(slots=True)
class Runner:
    scratch: Path
    effort: Effort
    findings: Findings
    measure_disk: Callable[[], None]
    """Called before every round of the first workload, so that the disk is known as it was then."""
    say: Callable[[str], None]
    settle: Callable[[], None] = os.sync
    """What one contestant has left in the page cache must not be written in the next one's time."""

    def install(self, contestants: Sequence[Contestant]) -> dict[str, str]:
        """Versions of those that could be had; the others are absent from everything, with the reason."""
        versions = {}
        for contestant in contestants:
            self.say(f"preparing {contestant.name}")
            try:
                versions[contestant.name] = contestant.install()
            except InstallError as error:
                self.findings.miss("", "", contestant.name, f"not installed: {error}")
        return versions

    def run(self, workloads: Sequence[Workload], contestants: Sequence[Contestant]) -> None:
        for workload in workloads:
            for round_number in range(1, self.effort.rounds + 1):
                if workload is workloads[0]:
                    self.say("the disk alone")
                    self.measure_disk()
                for contestant in contestants:
                    if workload.admits(contestant):
                        self._take_turn(workload, contestant, round_number)

    def _take_turn(self, workload: Workload, contestant: Contestant, round_number: int) -> None:
        if self.findings.is_missing(workload.name, "", contestant.name):
            return
        where = f"{workload.name}, round {round_number} of {self.effort.rounds}, {contestant.name}"
        self.say(f"{where}: starting")
        folder = self.scratch / "server"
        folder.mkdir()
        try:
            with contestant.serve(folder) as service:
                workload.perform(
                    Turn(
                        workload.name,
                        contestant,
                        service,
                        effort=self.effort,
                        findings=self.findings,
                        say=lambda case: self.say(f"{where}: {case}"),
                    )
                )
        except (ServerError, subprocess.CalledProcessError, OSError, grpc.RpcError) as error:
            # Not one case but the server failed: nothing it still would be asked is comparable.
            self.findings.miss(workload.name, "", contestant.name, f"server failed: {error}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            self.settle()
