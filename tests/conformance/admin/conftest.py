"""Administration is played by a Rust program: without cargo there is nothing to play it with."""

import shutil

import pytest

collect_ignore = [] if shutil.which("cargo") else ["test_published_admin_stubs.py"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if collect_ignore:
        terminalreporter.write_line(
            "published admin stubs: NOT RUN, this machine has no cargo", red=True, bold=True
        )
