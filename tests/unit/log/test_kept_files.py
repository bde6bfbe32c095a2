"""Journal files full of large entries: they are kept, and their runs are where they were first written."""

import errno
import os

import pytest

from pydanube.entries.disk import LocalDisk
from pydanube.entries.entry import HEADER_BYTES
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import Corrupt, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import Retention
from pydanube.log import JournalSettings
from pydanube.log.files import SPARES_MAX, JournalDirectory
from pydanube.log.keeping import KEPT_ENTRY_BYTES_MIN

ORDERS, PAYMENTS = TopicName("default", "orders"), TopicName("default", "payments")
LARGE = 40 * 1024


@pytest.fixture
def rig(rig):
    rig.settings = JournalSettings(file_bytes=256 * 1024, cache_bytes_max=0, space_retry_ms=1)
    return rig


async def open_both(rig):
    journal = await rig.open()
    logs = [await journal.open_topic(1, ORDERS), await journal.open_topic(2, PAYMENTS)]
    await journal.forget_unopened()
    return journal, logs


def bodies(topic, size=LARGE):
    return [b"<%d.%d>" % (topic, number) * (size // 5) for number in range(2)]


def rows(topic):
    return list(enumerate(bodies(topic)))


async def staged(rig, append):
    """Two messages of each topic, in turns, in one closed file."""
    journal, logs = await open_both(rig)
    for number in range(2):
        for topic, log in enumerate(logs):
            await append(log, [bodies(topic)[number]])
    await journal.stage_now()
    return journal, logs


def kept(rig):
    return [path for path in sorted(rig.disk.files()) if path.parent.name == "bundles"]


def copied(rig):
    return [path for path in rig.disk.files() if path.suffix == ".run"]


def spares(rig):
    return [path for path in rig.disk.files() if path.name.startswith("spare-")]


async def consume(log, offset):
    await log.retain(Retention(until_consumed=True), unconsumed_from=offset, now_ms=0)


async def test_what_is_in_a_kept_file_is_written_once_and_found_again(rig, append, read):
    journal, logs = await staged(rig, append)
    for _ in range(2):
        (file,) = kept(rig)
        assert copied(rig) == []
        assert [path for path, data in rig.disk.files().items() if bodies(0)[1] in data] == [file]
        assert [await read(log) for log in logs] == [rows(0), rows(1)]
        assert all(log.read(0, messages_max=1, bytes_max=1) is None for log in logs), "read from the file"
        assert [await log.find_time(7) for log in logs] == [0, 0]
        rig.kill()
        journal, logs = await open_both(rig)
    await append(logs[0], [b"more"])
    await journal.stage_now()
    assert await read(logs[0]) == [*rows(0), (2, b"more")]


@pytest.mark.parametrize(
    ("sizes", "is_kept"),
    [
        ([KEPT_ENTRY_BYTES_MIN - HEADER_BYTES] * 9, True),
        ([KEPT_ENTRY_BYTES_MIN - HEADER_BYTES - 1] * 9, False),
        ([LARGE] * 2, False),
    ],
    ids=["large", "too small", "too few"],
)
async def test_files_are_kept_for_large_entries_that_fill_half_of_them(rig, append, read, sizes, is_kept):
    journal, (log, _) = await open_both(rig)
    await append(log, [b"x" * size for size in sizes])
    await journal.stage_now()
    assert (len(kept(rig)), len(copied(rig))) == ((1, 0) if is_kept else (0, 1))
    assert await read(log) == [(number, b"x" * size) for number, size in enumerate(sizes)]


async def test_a_run_that_goes_leaves_no_bytes_and_the_last_one_takes_the_file_along(rig, append, read):
    _, logs = await staged(rig, append)
    (file,) = kept(rig)
    await consume(logs[0], 2)
    assert b"<0." not in rig.disk.files()[file]
    assert await read(logs[1]) == rows(1)
    before = spares(rig)
    await consume(logs[1], 2)
    assert kept(rig) == []
    assert spares(rig) == before, "a file with holes is of no use to the journal"


async def test_a_file_that_one_topic_had_to_itself_goes_back_to_the_journal(rig, append, read):
    journal, (log, _) = await open_both(rig)
    for number in range(SPARES_MAX + 2):
        await append(log, [b"%d" % number * LARGE] * 4)
        await journal.stage_now()
    assert len(kept(rig)) == SPARES_MAX + 2
    await consume(log, 4 * (SPARES_MAX + 2))
    assert kept(rig) == []
    assert len(spares(rig)) == SPARES_MAX
    assert {len(rig.disk.files()[path]) for path in spares(rig)} == {rig.settings.file_bytes}
    for number in range(SPARES_MAX + 2):
        await append(log, [b"%d" % number * LARGE] * 4)
        await journal.rotate()
    rig.kill()
    _, (log, _) = await open_both(rig)
    assert [body[:1] for _, body in await read(log)] == [b"%d" % (each // 4) for each in range(24)]


async def test_what_a_process_that_ended_left_in_a_kept_file_goes_at_the_next_start(rig, append, read):
    journal, logs = await staged(rig, append)
    (file,) = kept(rig)
    (run,) = logs[0].history.runs
    # The name is gone, the bytes are not: as if the process had ended in between.
    await journal.places.catalogue.runs.remove(ORDERS, run)
    await append(logs[0], [b"last"])
    rig.kill()
    stray = file.with_name("stray.kept")
    rig.disk = MemoryDisk(rig.disk.files() | {stray: b"x"})
    journal = await rig.open()
    other = await journal.open_topic(2, PAYMENTS)
    await journal.forget_unopened()
    assert kept(rig) == [file]
    # Whole blocks of what nobody names: of each message less than one is left at either end.
    assert rig.disk.files()[file].count(b"<0.") < 2 * 2 * 4096 // 5
    assert await read(other) == rows(1)


async def test_keeping_that_failed_is_done_again(rig, append, read):
    journal, logs = await open_both(rig)
    for topic, log in enumerate(logs):
        await append(log, bodies(topic))
    transact, rig.metadata.transact = rig.metadata.transact, refused
    with pytest.raises(Unavailable):
        await journal.stage_now()
    assert kept(rig) == [], "no second name without a run"
    rig.metadata.transact = transact
    await journal.stage_now()
    assert len(kept(rig)) == 1
    assert [await read(log) for log in logs] == [rows(0), rows(1)]


async def refused(compares, writes):
    raise Unavailable("the metadata store does not answer")


async def test_where_files_cannot_have_two_names_they_are_copied(rig, append, read):
    def refuse(call, path):
        if call == "link":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    rig.disk.before = refuse
    _, logs = await staged(rig, append)
    assert (len(kept(rig)), len(copied(rig))) == (0, 2)
    assert [await read(log) for log in logs] == [rows(0), rows(1)]


async def test_after_scrubbing_no_file_holds_what_was_given_up(rig, append):
    journal, (log, _) = await open_both(rig)
    await append(log, bodies(0) * 2)
    await journal.scrub()
    assert (len(kept(rig)), len(copied(rig))) == (0, 1)
    await consume(log, 4)
    assert not any(b"<0." in data for data in rig.disk.files().values())


async def test_scrubbing_reaches_what_an_earlier_use_left_in_a_file_that_is_kept(rig, append, read):
    journal, logs = await open_both(rig)
    for topic, log in enumerate(logs):
        await append(log, bodies(topic) * 2)
        await journal.stage_now()
    await consume(logs[0], 4)
    shorter = [b"y" * 33 * 1024] * 4
    for _ in range(3):
        await append(logs[1], shorter)
        await journal.stage_now()
    assert any(b"<0." in rig.disk.files()[file] for file in kept(rig)), "behind what the file holds now"
    await journal.scrub()
    assert not any(b"<0." in data for data in rig.disk.files().values())
    assert await read(logs[1]) == list(enumerate(bodies(1) * 2 + shorter * 3))


@pytest.mark.parametrize("place", ["table", "header", "entry", "end"])
async def test_damage_is_named_by_file_and_byte_and_concerns_one_topic(rig, append, read, place):
    _, logs = await staged(rig, append)
    (file,) = kept(rig)
    (run,) = logs[1].history.runs
    data = bytearray(rig.disk.files()[file])
    entry_at = data.index(bodies(1)[1])
    at = {"table": 3, "header": 5, "entry": entry_at - run.position + 100, "end": -1}[place]
    section = run.position + run.places * 16 + 4
    begin = {"table": run.position, "header": section, "entry": run.position, "end": 0}[place]
    if place == "end":
        at = data.rindex(b"NURD")
    data[begin + at] ^= 1
    rig.kill()
    rig.disk = MemoryDisk(rig.disk.files() | {file: bytes(data)})
    _, logs = await open_both(rig)
    with pytest.raises(Corrupt, match=f"{file}.* damaged at byte") as caught:
        await read(logs[1])
    position = int(caught.value.text.partition("at byte ")[2].partition(":")[0])
    assert abs(position - (begin + at)) <= (LARGE if place == "entry" else 64)
    assert await read(logs[0]) == rows(0)


async def test_a_kept_file_cut_short_is_told(rig, append, read):
    _, logs = await staged(rig, append)
    (file,) = kept(rig)
    data = rig.disk.files()[file]
    rig.kill()
    rig.disk = MemoryDisk(rig.disk.files() | {file: data[: logs[0].history.runs[0].position]})
    _, logs = await open_both(rig)
    for log in logs:
        with pytest.raises(Corrupt, match=f"{file}.*cut short"):
            await read(log)


@pytest.mark.parametrize("make_disk", [LocalDisk, MemoryDisk])
def test_a_file_with_a_second_name_is_not_used_again(make_disk, tmp_path):
    disk = make_disk()
    directory = JournalDirectory(tmp_path, disk, file_bytes=8192)
    for sequence in (1, 2):
        disk.close(directory.begin(sequence))
    disk.link(directory.path_of(1), tmp_path / "kept")
    assert not directory.adopt(tmp_path / "kept")
    directory.release(1)
    directory.release(2)
    assert disk.list(tmp_path) == ["kept", "spare-3.journal"]
    assert directory.adopt(tmp_path / "kept")
    assert len(disk.list(tmp_path)) == 2
