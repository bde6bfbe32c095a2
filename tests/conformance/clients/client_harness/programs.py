"""The four client programs: what each needs, lacks, and how it is built into `.tools/clients`."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).parents[1]
PROJECT = SOURCES.parents[2]
PROTO_DIR = PROJECT / "proto"
PROTOS = {"danubepb": "danube.proto", "schemapb": "schema_registry.proto"}
"""What the clients speak: the Go package made of it, and the file."""
TOOLS = PROJECT / ".tools"
BUILDS = TOOLS / "clients"
BUILD_SECONDS_MAX = 3_600

PROTOC_GEN_GO = "google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12"
PROTOC_GEN_GO_GRPC = "google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2"


class BuildError(Exception):
    """A client program could not be built; the text is the tool's own output."""


@dataclass(frozen=True, slots=True)
class ClientProgram:
    name: str
    under_test: str
    tools: tuple[str, ...]
    build: Callable[[], list[str]]
    """Build if anything changed since the last time; return the command that starts the agent."""
    lacks: frozenset[str] = frozenset()
    """What this client has no words for; scenarios that need it are left out for it."""
    may_stop_when_cut_off: bool = False
    """Its consumers reopen at once when a connection breaks, and stop for good if that meets its last breath."""
    missing_topic_code: str = ""
    """How subscribing to a missing topic fails; empty if the client finds out by itself."""

    @property
    def missing_tools(self) -> list[str]:
        return [tool for tool in self.tools if shutil.which(tool) is None]


def build_python() -> list[str]:
    source, environment = SOURCES / "python", BUILDS / "python-venv"
    python = environment / "bin" / "python"
    requirements = source / "requirements.txt"
    with unless_built("python", [requirements], python) as must_build:
        if must_build:
            venv.create(environment, with_pip=True, clear=True)
            run([str(python), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)])
    return [str(python), str(source / "agent.py")]


def build_rust() -> list[str]:
    source, target = SOURCES / "rust", BUILDS / "rust-target"
    agent = target / "debug" / "conformance-agent"
    inputs = [source / "Cargo.toml", *sorted((source / "src").iterdir())]
    with unless_built("rust", inputs, agent) as must_build:
        if must_build:
            # The client's own build script wants a protoc; the one inside grpcio-tools will do.
            environment = {"CARGO_TARGET_DIR": str(target), "PROTOC": str(protoc_command())}
            run(["cargo", "build", "--quiet"], cwd=source, environment=environment)
    return [str(agent)]


def build_go() -> list[str]:
    source, project = SOURCES / "go", BUILDS / "go"
    agent = project / "agent"
    inputs = [*sorted(source.iterdir()), *(PROTO_DIR / name for name in PROTOS.values())]
    with unless_built("go", inputs, agent) as must_build:
        if must_build:
            environment = {
                "GOBIN": str(TOOLS / "bin"),
                "PATH": f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}",
            }
            for plugin in (PROTOC_GEN_GO, PROTOC_GEN_GO_GRPC):
                run(["go", "install", plugin], environment=environment)
            shutil.rmtree(project, ignore_errors=True)
            shutil.copytree(source, project)
            for package, proto in PROTOS.items():
                stubs = project / package
                stubs.mkdir()
                options = [
                    argument
                    for plugin in ("go", "go-grpc")
                    for argument in (
                        f"--{plugin}_out={stubs}",
                        f"--{plugin}_opt=paths=source_relative",
                        f"--{plugin}_opt=M{proto}=conformance/{package}",
                    )
                ]
                run([str(protoc_command()), f"-I{PROTO_DIR}", *options, proto], environment=environment)
            run(["go", "build", "-o", str(agent), "."], cwd=project, environment=environment)
    return [str(agent)]


def build_java() -> list[str]:
    source, target = SOURCES / "java", BUILDS / "java"
    jar = target / "conformance-agent.jar"
    sources = sorted(path for path in source.rglob("*") if path.is_file())
    inputs = [*sources, *(PROTO_DIR / name for name in PROTOS.values())]
    with unless_built("java", inputs, jar) as must_build:
        if must_build:
            run([
                "mvn", "--quiet", "--batch-mode", "--file", str(source / "pom.xml"), "package",
                f"-Dmaven.repo.local={TOOLS / 'maven'}", f"-Dbuild.dir={target}", f"-Dproto.dir={PROTO_DIR}",
            ])  # fmt: skip
    return ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jar)]


PROGRAMS: Mapping[str, ClientProgram] = {
    program.name: program
    for program in (
        ClientProgram(
            "python",
            "danube-client 0.5.0 (published)",
            (),
            build_python,
            lacks=frozenset({"empty definitions"}),
        ),
        ClientProgram(
            "rust",
            "crate danube-client 0.16.0 (published)",
            ("cargo", "cc", "cmake"),
            build_rust,
            may_stop_when_cut_off=True,
        ),
        ClientProgram(
            "go",
            "grpc-go, behaving as the Go client",
            ("go",),
            build_go,
            lacks=frozenset({"empty definitions"}),
        ),
        ClientProgram(
            "java",
            "grpc-java, behaving as the Java client",
            ("java", "javac", "mvn"),
            build_java,
            lacks=frozenset({"empty definitions", "keys", "nack", "unasked partitions"}),
            missing_topic_code="NOT_FOUND",
        ),
    )
}


@contextmanager
def unless_built(name: str, inputs: Iterable[Path], product: Path) -> Iterator[bool]:
    """Yield whether a build is due; remember what was built from what if the block succeeds.

    Only one process builds at a time, so that parallel test runs do not trip over each other.
    """
    digest = hashlib.sha256()
    for path in inputs:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    BUILDS.mkdir(parents=True, exist_ok=True)
    stamp = BUILDS / f"{name}.built-from"
    with (BUILDS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        due = not (product.exists() and stamp.exists() and stamp.read_text() == digest.hexdigest())
        if due:
            stamp.unlink(missing_ok=True)
        yield due
        stamp.write_text(digest.hexdigest())


def protoc_command() -> Path:
    """A `protoc` executable around the compiler that grpcio-tools brings along."""
    wrapper = TOOLS / "bin" / "protoc"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m grpc_tools.protoc "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


def run(command: list[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(f"`{' '.join(command)}` ended with {done.returncode}:\n{done.stdout[-8_000:]}")
