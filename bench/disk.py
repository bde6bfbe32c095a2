"""The disk's own sync rate, from a C loop that does nothing else."""

import subprocess
from pathlib import Path

from bench.results import Sample


def measure_syncs(probe: Path, folder: Path, *, bytes_per_sync: int, seconds: float) -> Sample:
    """Let the probe write and sync for a while; a commit is one pwrite plus one fdatasync."""
    command = [str(probe), str(folder / "disk-probe.dat"), str(bytes_per_sync), str(seconds)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    commits = int(answer[0])
    return Sample(
        messages=commits,
        seconds=float(answer[1]),
        commits=commits,
        commit_bytes=commits * bytes_per_sync,
        cpu_wait_seconds=float(answer[4]),
    )
