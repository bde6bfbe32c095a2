"""Files of the journal: prepared before they are needed, and never taken from who writes to them."""

import errno
from pathlib import Path

import pytest

from pydanube.entries.disk import write_all
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.log.files import JournalDirectory

JOURNAL = Path("/data/journal")
BYTES = 8192


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


@pytest.fixture
def directory(disk: MemoryDisk) -> JournalDirectory:
    return JournalDirectory(JOURNAL, disk, file_bytes=BYTES)


def numbered(disk: MemoryDisk) -> list[int]:
    return [int(path.stem) for path in sorted(disk.files()) if path.stem.isdigit()]


def test_a_prepared_file_is_only_opened_when_it_is_begun(
    disk: MemoryDisk, directory: JournalDirectory
) -> None:
    directory.begin(1)
    directory.prepare()
    assert numbered(disk) == [1, 2]
    calls: list[str] = []
    disk.before = lambda call, path: calls.append(call)
    directory.begin(2)
    assert calls == ["open"]


def test_a_file_that_is_not_prepared_in_time_is_made_at_once(
    disk: MemoryDisk, directory: JournalDirectory
) -> None:
    directory.begin(1)
    directory.begin(2)
    assert numbered(disk) == [1, 2]


def test_the_name_of_a_prepared_file_survives_a_power_cut(
    disk: MemoryDisk, directory: JournalDirectory
) -> None:
    directory.begin(1)
    directory.prepare()
    left = disk.after_power_loss(lambda: False)
    assert [int(path.stem) for path in sorted(left) if path.stem.isdigit()] == [1, 2]


def test_preparing_twice_is_preparing_once(disk: MemoryDisk, directory: JournalDirectory) -> None:
    directory.begin(1)
    directory.prepare()
    directory.prepare()
    assert len(disk.files()) == 2


def test_a_file_begun_while_the_next_is_prepared_is_not_replaced(
    disk: MemoryDisk, directory: JournalDirectory
) -> None:
    directory.begin(1)

    def begin_meanwhile(call: str, path: Path | None) -> None:
        if call == "allocate":
            disk.before = lambda call, path: None
            write_all(disk, directory.begin(2), [b"acknowledged"], 0, sync=True)

    disk.before = begin_meanwhile
    directory.prepare()
    assert disk.files()[directory.path_of(2)].startswith(b"acknowledged")
    assert numbered(disk) == [1, 2, 3], "prepared is the one after it"


def test_after_a_restart_the_next_file_follows_the_one_in_use(
    disk: MemoryDisk, directory: JournalDirectory
) -> None:
    directory.begin(1)
    directory.begin(2)
    directory.release(1)
    again = JournalDirectory(JOURNAL, disk, file_bytes=BYTES)
    assert again.scan() == [2]
    again.reopen(2)
    again.prepare()
    assert numbered(disk) == [2, 3]


def test_a_full_disk_leaves_nothing_half_made(disk: MemoryDisk, directory: JournalDirectory) -> None:
    directory.begin(1)

    def refuse(call: str, path: Path | None) -> None:
        if call == "allocate":
            raise OSError(errno.ENOSPC, "no space left on device")

    disk.before = refuse
    with pytest.raises(OSError, match="no space"):
        directory.prepare()
    assert [path.name for path in disk.files()] == [directory.path_of(1).name]
    disk.before = lambda call, path: None
    directory.prepare()
    assert numbered(disk) == [1, 2]


def test_scrubbing_leaves_no_prepared_file_with_what_was_in_it(
    disk: MemoryDisk, directory: JournalDirectory
) -> None:
    fd = directory.begin(1)
    write_all(disk, fd, [b"secret"], 0, sync=True)
    directory.begin(2)
    directory.release(1)
    directory.prepare()
    assert disk.files()[directory.path_of(3)].startswith(b"secret"), "a file is used again as it is"
    with directory.scrubbing():
        directory.drop_spares()
        directory.begin(3)
    assert not any(b"secret" in data for data in disk.files().values())
