"""The disk's own sequential rate: writes of one size, each synced, into a file that is written already."""

from pathlib import Path

from bench.compare import tools
from bench.compare.samples import LoadSample
from bench.compare.tools import InstallError
from bench.compare.turn import Findings
from bench.disk import measure_syncs

DISK = "disk"
C_LOOP = "C loop on the disk"
WRITES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20, "8 MiB": 8 << 20}


def measure(findings: Findings, folder: Path, seconds: float) -> None:
    try:
        probe = tools.disk_probe()
    except InstallError as error:
        findings.miss(DISK, "", C_LOOP, str(error))
        return
    for case, size in WRITES.items():
        measured = measure_syncs(probe, folder, bytes_per_sync=size, seconds=seconds)
        sample = LoadSample(
            messages=measured.messages,
            seconds=measured.seconds,
            cpu_wait_seconds=measured.cpu_wait_seconds,
            size=size,
        )
        findings.results.add(DISK, case, C_LOOP, sample)
