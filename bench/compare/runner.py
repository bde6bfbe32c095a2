"""Brings workloads and contestants together: one server at a time, the contestants in turn, round after round."""

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

from bench.compare import tools
from bench.compare.contestants.contestant import Contestant
from bench.compare.samples import LoadSample
from bench.compare.tools import InstallError
from bench.compare.turn import Effort, Findings, Turn
from bench.compare.workloads import Workload
from bench.disk import measure_syncs
from bench.servers import ServerError

DISK = "disk"
DISK_WRITES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "8 MiB": 8 << 20}
DISK_SECONDS_MAX = 2.0
C_LOOP = "C loop on the disk"


@dataclass(slots=True)
class Runner:
    scratch: Path
    effort: Effort
    findings: Findings
    say: Callable[[str], None]

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
                    self._measure_disk()
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
            # What one contestant has left in the page cache must not be written in the next one's time.
            os.sync()

    def _measure_disk(self) -> None:
        """The disk's own sequential rate: writes of one size, each synced, into a file already written."""
        with suppress(InstallError):
            probe = tools.disk_probe()
            for case, size in DISK_WRITES.items():
                self.say(f"the disk alone: {case} a sync")
                seconds = min(self.effort.seconds, DISK_SECONDS_MAX)
                measured = measure_syncs(probe, self.scratch, bytes_per_sync=size, seconds=seconds)
                sample = LoadSample(
                    messages=measured.messages,
                    seconds=measured.seconds,
                    cpu_wait_seconds=measured.cpu_wait_seconds,
                    size=size,
                )
                self.findings.results.add(DISK, case, C_LOOP, sample)
