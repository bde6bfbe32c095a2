"""Runs read ahead of who converts them."""

import threading
from pathlib import Path

from pydanube.history.read_ahead import read_ahead


def read_so_far() -> int:
    """Bytes this process has asked the system for."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_the_next_run_is_read_while_one_is_in_use(make_run, row):
    first, second = make_run([row(b"a")]), make_run([row(bytes(1 << 20))], start=1)
    runs = read_ahead([first, second])
    before = read_so_far()
    assert next(runs) is first
    assert next(runs) is second
    assert read_so_far() - before > 1 << 20
    assert list(runs) == []


def test_closing_it_ends_its_thread(make_run, row):
    runs = read_ahead([make_run([row(b"a")]), make_run([row(bytes(1 << 20))], start=1)])
    threads = threading.active_count()
    next(runs)
    runs.close()
    assert threading.active_count() == threads


def test_what_is_wrong_with_a_run_is_left_to_its_reader(make_run, row):
    gone, short = make_run([row(b"b")], start=1), make_run([row(bytes(1 << 20))], start=2)
    Path(gone.path).unlink()
    Path(short.path).write_bytes(b"")
    runs = [make_run([row(b"a")]), gone, short]
    assert list(read_ahead(runs)) == runs
