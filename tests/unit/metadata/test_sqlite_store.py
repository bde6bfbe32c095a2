"""What the sqlite back end promises beyond the contract: it keeps things, and notices when it did not."""

import asyncio
import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pydanube.kernel.errors import Corrupt, ErrorCode, OutcomeUnknown, Rejected, Unavailable
from pydanube.metadata import ROOT, Entry, SqliteStore, VersionMismatch
from pydanube.metadata.sqlite import WAITING_BYTES_MAX
from pydanube.metadata.store import VALUE_BYTES_MAX


class ManualClock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic_ms(self) -> int:
        return self.ms


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "metadata.sqlite3"


async def open_store(path: Path, clock: ManualClock | None = None) -> SqliteStore:
    return await SqliteStore.open(path, clock=clock or ManualClock())


async def test_everything_is_there_after_reopening(path: Path) -> None:
    store = await open_store(path)
    version = await store.put("/a", b"1")
    await store.put("/b", b"2")
    await store.delete("/b")
    revision = await store.revision()
    await store.close()

    store = await open_store(path)
    assert [(e.key, e.value, e.version) for e in await store.list(ROOT)] == [("/a", b"1", version)]
    assert await store.revision() == revision
    assert await store.put("/c", b"3") == revision + 1
    await store.close()


async def test_a_lease_of_the_last_run_gets_one_more_term(path: Path) -> None:
    store = await open_store(path)
    lease = await store.grant(1_000)
    await store.put("/a", b"", lease=lease.id)
    await store.close()

    clock = ManualClock()
    store = await open_store(path, clock)
    assert await store.get("/a") is not None
    await store.keep_alive(lease.id)
    clock.ms += 1_000
    await store.expire_leases()
    assert await store.get("/a") is None
    await store.close()


async def test_a_second_process_is_kept_out(path: Path) -> None:
    store = await open_store(path)
    with pytest.raises(Unavailable, match="in use by another process"):
        await open_store(path)
    await store.close()
    await (await open_store(path)).close()


async def test_a_rotten_row_is_named_and_the_others_are_served(path: Path) -> None:
    store = await open_store(path)
    await store.put("/good", b"good")
    await store.put("/rotten", b"precious")
    await store.close()
    with sqlite3.connect(path) as database:
        database.execute("UPDATE entries SET value = ? WHERE key = '/rotten'", (b"previous",))
    database.close()

    store = await open_store(path)
    with pytest.raises(Corrupt, match="/rotten") as caught:
        await store.get("/rotten")
    assert caught.value.code is ErrorCode.METADATA_CORRUPT
    with pytest.raises(Corrupt):
        await store.put("/rotten", b"", expected_version=2)
    entry = await store.get("/good")
    assert entry is not None
    await store.close()


@pytest.mark.parametrize("column", ["version", "lease"])
async def test_the_checksum_covers_every_column(path: Path, column: str) -> None:
    store = await open_store(path)
    await store.put("/a", b"x")
    await store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE entries SET {column} = {column} + 1")
    database.close()
    store = await open_store(path)
    with pytest.raises(Corrupt):
        await store.list(ROOT)
    await store.close()


async def test_acknowledged_writes_that_vanished_are_noticed(path: Path) -> None:
    """SQLite drops the rest of its log at a rotten page without a word; the mark beside it speaks up."""
    store = await open_store(path)
    await store.put("/a", b"1")
    await store.close()
    before = path.read_bytes()
    store = await open_store(path)
    await store.put("/a", b"2")
    await store.close()
    path.write_bytes(before)

    with pytest.raises(Corrupt, match=r"ends at revision 1, but revision 2 was acknowledged.*delete"):
        await open_store(path)
    path.with_name(path.name + ".mark").unlink()
    store = await open_store(path)
    entry = await store.get("/a")
    assert entry is not None
    assert entry.value == b"1"
    await store.close()


async def test_a_torn_mark_falls_back_to_the_one_before(path: Path) -> None:
    store = await open_store(path)
    await store.put("/a", b"1")
    await store.put("/a", b"2")
    await store.close()
    mark = path.with_name(path.name + ".mark")
    content = bytearray(mark.read_bytes())
    content[4096 + 8] ^= 1
    mark.write_bytes(content)
    await (await open_store(path)).close()


async def test_a_file_of_something_else_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE theirs (x)")
    database.close()
    with pytest.raises(Rejected, match="not a metadata store"):
        await open_store(path)


async def test_garbage_is_not_taken_for_a_database(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"garbage" * 1000)
    with pytest.raises(Corrupt, match="damaged"):
        await open_store(path)


async def test_a_newer_schema_is_refused(path: Path) -> None:
    await (await open_store(path)).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(Rejected, match="schema version 99"):
        await open_store(path)


async def test_a_structurally_damaged_file_is_refused(path: Path) -> None:
    store = await open_store(path)
    for n in range(200):
        await store.put(f"/fill/{n}", bytes(500))
    await store.close()
    content = bytearray(path.read_bytes())
    for page in range(3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 8] = b"\xff" * 8
    path.write_bytes(content)
    with pytest.raises(Corrupt, match="damaged"):
        await open_store(path)


async def test_too_much_waiting_is_refused_not_hoarded(path: Path) -> None:
    store = await open_store(path)
    value = bytes(VALUE_BYTES_MAX)
    count = WAITING_BYTES_MAX // VALUE_BYTES_MAX + 3
    results = await asyncio.gather(
        *(store.put(f"/k/{n}", value) for n in range(count)), return_exceptions=True
    )
    refused = [r for r in results if isinstance(r, Unavailable)]
    assert [r.code for r in refused] == [ErrorCode.OVERLOADED] * 3
    assert len(await store.list("/k")) == count - 3
    await store.put("/later", b"")
    await store.close()


async def test_after_a_failed_sync_nothing_more_is_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await open_store(path)
    await store.put("/a", b"1")

    def failing_sync(descriptor: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing_sync)
        with pytest.raises(OutcomeUnknown, match="may or may not be kept"):
            await store.put("/a", b"2")
    with pytest.raises(Unavailable, match="has stopped") as caught:
        await store.put("/a", b"3")
    assert caught.value.code is ErrorCode.STORE_FAILED
    await store.close()
    store = await open_store(path)
    entry = await store.get("/a")
    assert entry is not None
    assert entry.value in (b"1", b"2")
    await store.close()


async def test_an_error_of_one_operation_does_not_touch_its_group(path: Path) -> None:
    store = await open_store(path)
    results = await asyncio.gather(
        store.put("/a", b"1"),
        store.put("/a", b"2", expected_version=99),
        store.get("/a"),
        store.put("/b", b"3"),
        return_exceptions=True,
    )
    assert results[0] == 1
    assert isinstance(results[1], VersionMismatch)
    assert results[2] == Entry("/a", b"1", 1)
    assert results[3] == 2
    await store.close()


async def test_what_was_accepted_before_close_is_kept(path: Path) -> None:
    store = await open_store(path)
    writes = [asyncio.create_task(store.put(f"/k/{n}", b"")) for n in range(50)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*writes)
    store = await open_store(path)
    assert len(await store.list("/k")) == 50
    await store.close()


async def test_a_write_whose_caller_left_still_happens(path: Path) -> None:
    store = await open_store(path)
    write = asyncio.create_task(store.put("/a", b"1"))
    await asyncio.sleep(0)
    write.cancel()
    await asyncio.gather(write, return_exceptions=True)
    assert await store.get("/a") is not None
    await store.close()


WRITER = """
import asyncio, sys, pathlib
from pydanube.metadata import SqliteStore

class Clock:
    def now_ms(self): return 0
    def monotonic_ms(self): return 0

async def main():
    store = await SqliteStore.open(pathlib.Path(sys.argv[1]), clock=Clock())
    n = len(await store.list("/k"))
    while True:
        await asyncio.gather(*(store.put(f"/k/{i:06}", b"%d" % i) for i in range(n, n + 7)))
        n += 7
        print(n, flush=True)

asyncio.run(main())
"""


async def test_nothing_acknowledged_is_lost_by_kill_9(path: Path) -> None:
    acknowledged = 0
    for _ in range(3):
        with subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE) as writer:
            assert writer.stdout is not None
            for _ in range(20):
                acknowledged = int(writer.stdout.readline())
            os.kill(writer.pid, signal.SIGKILL)
            rest = writer.stdout.read().split()
            acknowledged = int(rest[-1]) if rest else acknowledged
        store = await open_store(path)
        entries = await store.list("/k")
        await store.close()
        assert len(entries) >= acknowledged
        assert [e.value for e in entries] == [b"%d" % n for n in range(len(entries))]
