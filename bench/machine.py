"""What the numbers depend on: the machine, the versions, the date."""

import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from bench.servers import ROOT, compiled_modules


def describe() -> dict[str, str]:
    compiled = compiled_modules()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _first_line(["git", "describe", "--always", "--dirty"]),
        "command": " ".join(["python", "-m", "bench", *sys.argv[1:]]),
        "machine": f"{os.cpu_count()} × {_cpu_model()}, Linux {platform.release()}",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "Python": f"{platform.python_version()}, uvloop {version('uvloop')}, protobuf {version('protobuf')}",
        "pydanube": f"{compiled} compiled modules" if compiled else "interpreted (nothing is compiled)",
        "yardsticks": f"grpcio {version('grpcio')}; grpc-go {_grpc_go_version()} on {_go_version()}",
        "load generator": _first_line(["h2load", "--version"]),
    }


def _cpu_model() -> str:
    model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), flags=re.MULTILINE)
    return model[1] if model else platform.machine()


def _grpc_go_version() -> str:
    pinned = re.search(r"google.golang.org/grpc v(\S+)", (ROOT / "bench" / "go" / "go.mod").read_text())
    return pinned[1] if pinned else "unknown"


def _go_version() -> str:
    found = re.search(r"go[\d.]+", _first_line(["go", "version"]).removeprefix("go version"))
    return found[0] if found else "no Go"


def _first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not installed"
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return answer.partition("\n")[0]
