"""A file of which some parts are in memory."""

import io

import pytest

from pydanube.history.sparse_file import SparseFile


@pytest.fixture
def file() -> SparseFile:
    return SparseFile(100, [(90, b"0123456789"), (10, memoryview(b"abcdef"))])


def test_parts_are_read_where_they_are(file: SparseFile) -> None:
    file.seek(12)
    assert (file.read(3), file.tell(), file.read(1)) == (b"cde", 15, b"f")


def test_the_end_of_the_file_cuts_a_read_short(file: SparseFile) -> None:
    assert file.seek(-4, io.SEEK_END) == 96
    assert (file.read(10), file.read(10), file.read()) == (b"6789", b"", b"")
    assert file.seek(-2, io.SEEK_CUR) == 98
    assert file.read() == b"89"


@pytest.mark.parametrize(("position", "size"), [(0, 1), (9, 2), (14, 3), (16, 1), (89, 2), (50, -1)])
def test_what_was_not_fetched_cannot_be_read(file: SparseFile, position: int, size: int) -> None:
    file.seek(position)
    with pytest.raises(OSError, match=f"bytes {position} to"):
        file.read(size)


def test_no_position_lies_before_the_file(file: SparseFile) -> None:
    with pytest.raises(OSError, match="position -1 lies before"):
        file.seek(-1)


def test_it_describes_itself_as_files_do(file: SparseFile) -> None:
    assert (file.size(), file.readable(), file.seekable(), file.writable()) == (100, True, True, False)
    file.close()
    assert file.closed
