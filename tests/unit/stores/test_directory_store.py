"""What a directory store does on the disk, and what it says when the disk does not."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Unavailable
from pydanube.stores.directory import DirectoryStore


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[DirectoryStore]:
    opened = DirectoryStore(tmp_path / "objects")
    yield opened
    await opened.close()


def spooled(folder: Path, data: bytes = b"data") -> Path:
    file = folder / "spool"
    file.write_bytes(data)
    return file


def no_links(number: int) -> object:
    def refuse(source: Path, target: Path, **options: bool) -> None:
        raise OSError(number, os.strerror(number), str(source))

    return refuse


async def test_a_directory_that_others_remove_while_it_is_made_is_made_again(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_bytes("ns/other/1", b"")
    make, removed = Path.mkdir, []

    def make_too_late(path: Path, *args: int) -> None:
        if path.name == "topic" and not removed:
            # As a deletion does that takes away the last object of a namespace.
            removed.append(path.parent)
            (tmp_path / "objects/ns/other/1").unlink()
            (tmp_path / "objects/ns/other").rmdir()
            path.parent.rmdir()
        make(path, *args)

    monkeypatch.setattr(Path, "mkdir", make_too_late)
    await store.put_file("ns/topic/1", spooled(tmp_path))
    assert removed
    assert await store.read_whole("ns/topic/1", size_max=100) == b"data"


async def test_a_file_is_moved_not_copied(store: DirectoryStore, tmp_path: Path) -> None:
    file = spooled(tmp_path)
    inode = file.stat().st_ino
    await store.put_file("ns/topic/1", file)
    stored = tmp_path / "objects/ns/topic/1"
    assert (stored.stat().st_ino, stored.stat().st_nlink) == (inode, 1)
    assert not file.exists()


async def test_an_object_is_as_old_as_its_put(store: DirectoryStore, tmp_path: Path) -> None:
    file = spooled(tmp_path)
    os.utime(file, (1, 1))
    await store.put_file("a", file)
    (found,) = [each async for each in store.list("")]
    assert found.modified_ms > 1_600_000_000_000


async def test_everything_is_synced_before_it_is_seen(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, str]] = []
    fsync, link = os.fsync, os.link

    def noted_fsync(descriptor: int) -> None:
        steps.append(("sync", os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))))
        fsync(descriptor)

    def noted_link(source: Path, target: Path, **options: bool) -> None:
        steps.append(("link", target.name))
        link(source, target, **options)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "link", noted_link)
    await store.put_file("ns/topic/1", spooled(tmp_path))
    assert steps == [
        ("sync", "spool"),
        ("sync", tmp_path.name),
        ("sync", "objects"),
        ("sync", "ns"),
        ("link", "1"),
        ("sync", "topic"),
    ]


async def test_a_file_system_without_hard_links(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links(errno.EPERM))
    await store.put_file("a", spooled(tmp_path))
    assert await store.read_whole("a", size_max=10) == b"data"
    with pytest.raises(Conflict):
        await store.put_file("a", spooled(tmp_path, b"more"))
    await store.put_bytes("b", b"bytes")
    assert {each.key async for each in store.list("")} == {"a", "b"}


async def test_a_link_whose_answer_was_lost(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def link_twice(source: Path, target: Path, **options: bool) -> None:
        link(source, target, **options)
        link(source, target, **options)

    monkeypatch.setattr(os, "link", link_twice)
    await store.put_file("a", spooled(tmp_path))
    assert await store.read_whole("a", size_max=10) == b"data"


@pytest.mark.parametrize(
    ("number", "what_to_do"),
    [
        (errno.ENOSPC, "free space or enlarge the file system"),
        (errno.EDQUOT, "raise the quota"),
        (errno.EACCES, "give the user of the broker read and write permission"),
        (errno.EROFS, "mount the file system for writing"),
        (errno.EIO, "the disk may be failing"),
        (errno.ESTALE, "mount the shared file system again"),
        (errno.ENXIO, "check the file system"),
    ],
)
async def test_a_disk_that_fails_a_copy_leaves_nothing(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, what_to_do: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", no_links(errno.EXDEV))
    monkeypatch.setattr(os, "fdatasync", fail)
    file = spooled(tmp_path, bytes(20 << 20))
    with pytest.raises(Unavailable) as error:
        await store.put_file("a", file)
    assert error.value.code is ErrorCode.STORAGE_FAILED
    assert str(tmp_path / "objects") in error.value.text
    assert what_to_do in error.value.text
    assert [each async for each in store.list("")] == []
    assert file.exists()


async def test_a_full_disk_keeps_the_file(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", no_links(errno.ENOSPC))
    file = spooled(tmp_path)
    with pytest.raises(Unavailable, match="No space left"):
        await store.put_file("a", file)
    monkeypatch.undo()
    await store.put_file("a", file)
    assert await store.read_whole("a", size_max=10) == b"data"


async def test_a_root_that_is_gone_is_not_a_loss_of_objects(store: DirectoryStore, tmp_path: Path) -> None:
    await store.put_bytes("a", b"data")
    (tmp_path / "objects").rename(tmp_path / "unmounted")
    with pytest.raises(Unavailable, match="is its file system mounted"):
        await store.read("a", 0, 1)
    (tmp_path / "unmounted").rename(tmp_path / "objects")
    assert await store.read("a", 0, 4) == b"data"


async def test_a_file_where_a_directory_must_be(store: DirectoryStore) -> None:
    await store.put_bytes("a", b"data")
    with pytest.raises(Unavailable, match="Not a directory"):
        await store.put_bytes("a/b", b"data")


async def test_a_cut_file_is_named_with_its_end(store: DirectoryStore, tmp_path: Path) -> None:
    await store.put_bytes("a/b", b"0123456789")
    os.truncate(tmp_path / "objects/a/b", 7)
    with pytest.raises(Corrupt, match=r"objects/a/b ends at byte 7, bytes up to 10"):
        await store.read("a/b", 5, 5)


async def test_empty_directories_go_with_their_last_object(store: DirectoryStore, tmp_path: Path) -> None:
    await store.put_bytes("ns/one/1", b"")
    await store.put_bytes("ns/two/1", b"")
    await store.delete("ns/one/1")
    assert not (tmp_path / "objects/ns/one").exists()
    assert (tmp_path / "objects/ns/two").exists()
    await store.delete("ns/two/1")
    assert [*(tmp_path / "objects").iterdir()] == []


async def test_a_directory_taken_away_between_making_and_using_it(
    store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link
    taken = []

    def link_after_a_delete(source: Path, target: Path, **options: bool) -> None:
        if not taken:
            taken.append(target.parent)
            target.parent.rmdir()
        link(source, target, **options)

    monkeypatch.setattr(os, "link", link_after_a_delete)
    await store.put_file("ns/topic/1", spooled(tmp_path))
    assert await store.read_whole("ns/topic/1", size_max=10) == b"data"


async def test_links_to_elsewhere_are_not_listed(store: DirectoryStore, tmp_path: Path) -> None:
    await store.put_bytes("a", b"")
    (tmp_path / "secret").write_bytes(b"s")
    (tmp_path / "objects/link").symlink_to(tmp_path / "secret")
    (tmp_path / "objects/loop").symlink_to(tmp_path / "objects")
    assert [each.key async for each in store.list("")] == ["a"]
