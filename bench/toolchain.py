"""Builds and finds what the benchmarks need, and says plainly what is missing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.servers import ROOT

TOOLS = ROOT / ".tools" / "bench"
GO_MODULE = "danube.bench"
GO_SOURCES = ROOT / "bench" / "go"
GO_PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")
INSTALL_SECONDS_MAX = 300


@dataclass(frozen=True, slots=True)
class Tools:
    """What could be had; None where it could not, with the reason in `missing`."""

    h2load: bool
    grpc_go_server: Path | None
    consume: Path | None
    disk_probe: Path | None
    missing: tuple[str, ...]


def prepare() -> Tools:
    """Install and build everything, keeping on when a part fails."""
    missing: list[str] = []
    binaries = TOOLS / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    h2load = _attempt("h2load (no unary publish, no durable publish)", _install_h2load, missing)
    go = _attempt("the Go programs (no grpc-go yardstick, no streams)", _build_go, missing)
    disk = _attempt("the disk probe (no comparison with the disk)", _build_disk_probe, missing)
    return Tools(
        h2load=h2load,
        grpc_go_server=binaries / "server" if go else None,
        consume=binaries / "consume" if go else None,
        disk_probe=binaries / "disk_probe" if disk else None,
        missing=tuple(missing),
    )


def _attempt(what: str, action: Callable[[], None], missing: list[str]) -> bool:
    try:
        action()
    except FileNotFoundError as error:
        missing.append(f"{what}: {error.filename} is not installed")
    except subprocess.CalledProcessError as error:
        missing.append(f"{what}: {error.cmd[0]} failed: {error.stderr.strip()[-300:]}")
    except subprocess.TimeoutExpired as error:
        missing.append(f"{what}: {error.cmd[0]} took more than {INSTALL_SECONDS_MAX} s")
    else:
        return True
    return False


def _install_h2load() -> None:
    if shutil.which("h2load") is None:
        sudo = [] if os.geteuid() == 0 else ["sudo", "--non-interactive"]
        _run([*sudo, "apt-get", "install", "--yes", "nghttp2-client"])


def _build_disk_probe() -> None:
    source = ROOT / "bench" / "disk_probe.c"
    _run(["gcc", "-O2", "-Wall", "-o", str(TOOLS / "bin" / "disk_probe"), str(source)])


def _build_go() -> None:
    """Copy the sources beside freshly generated stubs and build there: nothing generated is committed."""
    workshop = TOOLS / "go"
    shutil.copytree(GO_SOURCES, workshop, dirs_exist_ok=True)
    binaries = str(TOOLS / "bin") + os.sep
    _run(["go", "build", "-o", binaries, *GO_PLUGINS], folder=workshop)
    placed = f"module={GO_MODULE},Mdanube.proto={GO_MODULE}/danubepb"
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", "danube.proto"]
    command += [f"--go_out={workshop}", f"--go_opt={placed}"]
    command += [f"--go-grpc_out={workshop}", f"--go-grpc_opt={placed}"]
    _run(command)
    _run(["go", "build", "-o", binaries, "./server", "./consume"], folder=workshop)


def _run(command: Sequence[str], folder: Path = ROOT) -> None:
    search = f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": search},
        check=True,
        capture_output=True,
        text=True,
        timeout=INSTALL_SECONDS_MAX,
    )
