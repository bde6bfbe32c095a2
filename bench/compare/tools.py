"""Brings the peers and their load generators to the tools folder, and runs them. Nothing of it is committed."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.load import LoadError
from bench.servers import ROOT

TOOLS = ROOT / ".tools" / "compare"
BINARIES = TOOLS / "bin"
DRIVERS = Path(__file__).parent / "drivers"
INSTALL_SECONDS_MAX = 600
RUN_SECONDS_MAX = 900
SAID_CHARACTERS_MAX = 200


class InstallError(Exception):
    """A peer cannot be had here; the message says what was tried."""


def debian_package(package: str, program: str) -> str:
    """Where a Debian package keeps its program; installed first if it is not there and we may."""
    if shutil.which(program) is None:
        if os.geteuid() != 0:
            raise InstallError(f"{program} is not installed: run `apt-get install {package}` as root")
        # Not as a service: it would take the peer's usual port and a share of the machine.
        _install(["apt-get", "install", "--yes", "--no-install-recommends", package], {"RUNLEVEL": "1"})
    found = shutil.which(program)
    if found is None:
        raise InstallError(f"{package} is installed, but there is no {program}")
    return found


def go_program(module: str, name: str) -> Path:
    """A program of a published Go module, in its latest version."""
    if not (BINARIES / name).exists():
        _install(["go", "install", f"{module}@latest"], {"GOBIN": str(BINARIES)})
    return BINARIES / name


def go_driver(name: str) -> Path:
    """One of our own drivers in Go, built from a copy, so that checksums stay out of the sources."""
    workshop = TOOLS / "go"
    shutil.copytree(DRIVERS / "go", workshop, dirs_exist_ok=True)
    _install(["go", "mod", "tidy"], folder=workshop)
    _install(["go", "build", "-o", str(BINARIES / f"{name}-driver"), f"./{name}"], folder=workshop)
    return BINARIES / f"{name}-driver"


def maven_libraries(name: str, artifacts: Sequence[tuple[str, str, str]]) -> Path:
    """A folder with published Java artifacts (group, artifact, version) and all they need."""
    folder = TOOLS / name
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(_pom(name, artifacts))
        copy = [
            "mvn",
            "--quiet",
            "--batch-mode",
            "dependency:copy-dependencies",
            "-DoutputDirectory=libraries",
        ]
        _install(copy, folder=folder)
        (folder / "complete").touch()
    return folder / "libraries"


def java_driver(name: str, libraries: Path) -> Path:
    """The folder of classes of one of our own drivers in Java."""
    classes = TOOLS / "java" / name
    sources = [str(DRIVERS / "java" / "Load.java"), str(DRIVERS / "java" / f"{name}.java")]
    _install(["javac", "-d", str(classes), "-cp", f"{libraries}/*", *sources])
    return classes


def disk_probe() -> Path:
    _install(
        ["gcc", "-O2", "-Wall", "-o", str(BINARIES / "disk_probe"), str(ROOT / "bench" / "disk_probe.c")]
    )
    return BINARIES / "disk_probe"


def run_tool(command: Sequence[str], *, exit_code: int | None = 0) -> tuple[str, str]:
    """Run a load generator: the command as a reader may repeat it, and what it printed."""
    shown = shlex.join(command).replace(f"{ROOT}{os.sep}", "")
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX
        )
    except subprocess.TimeoutExpired as error:
        raise LoadError(f"{shown}: no end after {RUN_SECONDS_MAX} s") from error
    if exit_code is not None and done.returncode != exit_code:
        raise LoadError(
            f"{shown}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-SAID_CHARACTERS_MAX:]}"
        )
    return shown, done.stdout


def _pom(name: str, artifacts: Sequence[tuple[str, str, str]]) -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for group, artifact, version in artifacts
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>danube.compare</groupId><artifactId>{name}</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )


def _install(command: Sequence[str], environment: dict[str, str] | None = None, folder: Path = ROOT) -> None:
    BINARIES.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            check=True,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS_MAX,
        )
    except FileNotFoundError as error:
        raise InstallError(f"{error.filename} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise InstallError(f"{shlex.join(command)} took more than {INSTALL_SECONDS_MAX} s") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip()[-SAID_CHARACTERS_MAX:]
        raise InstallError(f"{shlex.join(command)}: {said}") from error
