"""The real disk and its twin in memory behave alike; the twin loses what was not synced."""

import errno
import os
from pathlib import Path
from threading import Semaphore, Thread

import pytest

from pydanube.entries.disk import LocalDisk, write_all
from pydanube.entries.freeing import FREED_AT_ONCE_BYTES, FREEING, WAITING_MAX
from pydanube.entries.memory_disk import MemoryDisk


@pytest.fixture(params=[LocalDisk, MemoryDisk])
def disk(request):
    return request.param()


def test_files_are_written_read_moved_and_removed(disk, tmp_path):
    folder = tmp_path / "a" / "b"
    disk.make_directory(folder)
    fd = disk.create(folder / "x")
    assert write_all(disk, fd, [b"hello ", b"", b"world"], 0, sync=False) == 11
    write_all(disk, fd, [b"W"], 6, sync=True)
    disk.fdatasync(fd)
    disk.close(fd)
    disk.rename(folder / "x", folder / "y")
    disk.sync_directory(folder)
    assert disk.list(folder) == ["y"]
    assert disk.read(folder / "y") == b"hello World"
    assert disk.read_range(folder / "y", 6, 3) == b"Wor"
    assert disk.read_range(folder / "y", 6, 300) == b"World"
    assert disk.size(folder / "y") == 11
    fd = disk.open(folder / "y")
    write_all(disk, fd, [b"J"], 0, sync=False)
    disk.close(fd)
    assert disk.read(folder / "y") == b"Jello World"
    disk.unlink(folder / "y")
    disk.unlink(folder / "y")
    assert disk.list(folder) == []
    disk.remove_directory(folder)
    disk.remove_directory(folder)


def test_an_allocated_file_has_its_size_and_only_zeros(disk, tmp_path):
    fd = disk.create(tmp_path / "x")
    write_all(disk, fd, [b"old" * 1000], 0, sync=False)
    disk.allocate(fd, 2000)
    disk.close(fd)
    assert disk.read(tmp_path / "x") == bytes(2000)


def test_what_is_discarded_reads_as_zeros_and_the_file_keeps_its_size(disk, tmp_path):
    fd = disk.create(tmp_path / "x")
    write_all(disk, fd, [b"x" * 10_000], 0, sync=False)
    disk.discard(fd, 4096, 4096)
    disk.discard(fd, 9_000, 4096)
    disk.close(fd)
    assert disk.read(tmp_path / "x") == b"x" * 4096 + bytes(4096) + b"x" * 808 + bytes(1_000)


def test_a_reserved_file_has_its_size_and_only_zeros(disk, tmp_path):
    fd = disk.create(tmp_path / "x")
    disk.reserve(fd, 9_000)
    assert disk.read_at(fd, 8_000, 5_000) == bytes(1_000)
    disk.close(fd)
    assert disk.read(tmp_path / "x") == bytes(9_000)


def test_a_file_has_two_names_until_one_is_removed(disk, tmp_path):
    fd = disk.create(tmp_path / "x")
    disk.allocate(fd, 8192)
    disk.close(fd)
    for _ in range(2):
        disk.link(tmp_path / "x", tmp_path / "y")
    assert disk.list(tmp_path) == ["x", "y"]
    assert disk.names(tmp_path / "x") == 2
    fd = disk.open(tmp_path / "y")
    write_all(disk, fd, [b"same"], 8192, sync=False)
    disk.close(fd)
    assert disk.read(tmp_path / "x")[8192:] == b"same"
    disk.unlink(tmp_path / "x")
    assert disk.read(tmp_path / "y") == bytes(8192) + b"same"
    assert disk.names(tmp_path / "y") == 1
    assert disk.is_whole(tmp_path / "y", 8192)
    disk.truncate(tmp_path / "y", 8192)
    assert disk.read(tmp_path / "y") == bytes(8192)


def test_two_names_are_one_file_for_who_comes_after_a_crash_too():
    before = MemoryDisk()
    before.close(before.create(Path("/x")))
    before.link(Path("/x"), Path("/y"))
    fd = before.open(Path("/x"))
    write_all(before, fd, [b"both"], 0, sync=True)
    before.sync_directory(Path("/"))
    for files in (before.files(), before.after_power_loss(lambda: False)):
        after = MemoryDisk(files)
        write_all(after, after.open(Path("/y")), [b"B"], 0, sync=False)
        assert after.read(Path("/x")) == b"Both"


def test_a_file_with_a_hole_or_too_small_a_file_is_not_whole(disk, tmp_path):
    fd = disk.create(tmp_path / "x")
    disk.allocate(fd, 5 * 4096)
    assert not disk.is_whole(tmp_path / "x", 5 * 4096 + 1)
    disk.discard(fd, 4096, 4096)
    disk.close(fd)
    assert not disk.is_whole(tmp_path / "x", 5 * 4096)


def test_more_buffers_than_one_call_takes(disk, tmp_path):
    fd = disk.create(tmp_path / "x")
    assert write_all(disk, fd, [b"%04d" % number for number in range(3000)], 0, sync=False) == 12_000
    disk.close(fd)
    assert disk.read(tmp_path / "x") == b"".join(b"%04d" % number for number in range(3000))


def test_what_is_not_there_is_said_so(disk, tmp_path):
    assert disk.list(tmp_path / "nowhere") == []
    for call in (disk.open, disk.read, disk.size):
        with pytest.raises(FileNotFoundError):
            call(tmp_path / "nowhere")


def test_a_directory_in_use_is_not_removed(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").touch()
    LocalDisk().remove_directory(tmp_path / "a")
    assert (tmp_path / "a" / "x").exists()


@pytest.fixture
def synced(tmp_path):
    disk = MemoryDisk()
    fd = disk.create(tmp_path / "x")
    write_all(disk, fd, [b"a" * 1024], 0, sync=True)
    disk.sync_directory(tmp_path)
    return disk, fd


def test_a_power_cut_takes_unsynced_sectors_one_by_one(synced, tmp_path):
    disk, fd = synced
    write_all(disk, fd, [b"b" * 1024], 0, sync=False)
    fate = iter([True, False])
    assert disk.after_power_loss(lambda: next(fate)) == {tmp_path / "x": b"b" * 512 + b"a" * 512}


def test_a_power_cut_takes_names_whose_directory_was_not_synced(synced, tmp_path):
    disk, _ = synced
    disk.rename(tmp_path / "x", tmp_path / "y")
    assert set(disk.after_power_loss(lambda: False)) == {tmp_path / "x"}
    disk.sync_directory(tmp_path)
    assert set(disk.after_power_loss(lambda: False)) == {tmp_path / "y"}


def test_a_synced_write_keeps_its_own_bytes_only(synced, tmp_path):
    disk, fd = synced
    write_all(disk, fd, [b"b" * 512], 0, sync=False)
    write_all(disk, fd, [b"c" * 512], 512, sync=True)
    assert disk.after_power_loss(lambda: False)[tmp_path / "x"] == b"a" * 512 + b"c" * 512


def test_a_full_disk_refuses_to_grow_and_gets_space_back(tmp_path):
    disk = MemoryDisk()
    disk.space = 1000
    fd = disk.create(tmp_path / "x")
    disk.allocate(fd, 900)
    with pytest.raises(OSError, match="No space") as caught:
        disk.allocate(disk.create(tmp_path / "y"), 200)
    assert caught.value.errno == errno.ENOSPC
    disk.unlink(tmp_path / "x")
    disk.allocate(disk.create(tmp_path / "y"), 200)


def test_a_large_file_is_given_back_in_steps_under_no_name(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(bytes(5 * FREED_AT_ONCE_BYTES))
    with path.open("rb") as watched:
        sizes: list[int] = []

        def look(_: float) -> None:
            assert not path.exists()
            sizes.append(os.fstat(watched.fileno()).st_size)

        monkeypatch.setattr("pydanube.entries.freeing.time.sleep", look)
        LocalDisk().unlink(path)
        FREEING.wait()
    assert sizes == [count * FREED_AT_ONCE_BYTES for count in (4, 3, 2, 1)]


def test_who_removes_a_large_file_does_not_wait_for_its_space_unless_too_many_do(tmp_path, monkeypatch):
    slow = Semaphore(0)
    monkeypatch.setattr("pydanube.entries.freeing.time.sleep", lambda _: slow.acquire())
    # One is being freed, the others wait for it.
    paths = [tmp_path / str(number) for number in range(WAITING_MAX + 2)]
    for path in paths:
        path.touch()
        os.truncate(path, FREED_AT_ONCE_BYTES + 1)
    for path in paths[:-1]:
        LocalDisk().unlink(path)
    one_more = Thread(target=LocalDisk().unlink, args=(paths[-1],))
    one_more.start()
    one_more.join(0.2)
    assert not any(path.exists() for path in paths[:-1])
    assert one_more.is_alive()
    slow.release(len(paths))
    one_more.join()
    FREEING.wait()
    open_files = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    assert not any(name.startswith(str(tmp_path)) for name in open_files)


def test_a_file_with_another_name_stays_whole(tmp_path):
    data = bytes(range(256)) * (FREED_AT_ONCE_BYTES // 64)
    (tmp_path / "x").write_bytes(data)
    (tmp_path / "y").hardlink_to(tmp_path / "x")
    LocalDisk().unlink(tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert (tmp_path / "y").read_bytes() == data
