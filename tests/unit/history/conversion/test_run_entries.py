"""The entries of a run as arrays."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from pydanube.entries.entry import HEADER_BYTES, iterate_entries
from pydanube.entries.run_file import INDEX_EVERY_BYTES
from pydanube.history.convert_job import RunSource
from pydanube.history.run_entries import read_entries
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable


def all_bodies(source: RunSource, bytes_wanted: int = 1 << 20) -> list[bytes]:
    return [
        entries.data.buffer[start:end]
        for entries in read_entries(source, bytes_wanted=bytes_wanted)
        for start, end in zip(entries.starts, entries.ends, strict=True)
    ]


@pytest.mark.parametrize("bytes_wanted", [1, INDEX_EVERY_BYTES, 1 << 30])
def test_all_entries_come_whole_and_in_order(make_run, row, bytes_wanted):
    bodies = [row(bytes(number * 7919 % 3000)) for number in range(400)] + [row(bytes(300_000)), row(b"last")]
    source = make_run(bodies, start=50)
    assert all_bodies(source, bytes_wanted) == bodies
    pieces = list(read_entries(source, bytes_wanted=bytes_wanted))
    assert np.concatenate([piece.bases for piece in pieces]).tolist() == list(range(50, 452))
    assert np.concatenate([piece.append_ms for piece in pieces]).tolist() == list(range(1000, 1402))


def test_pieces_are_about_as_large_as_wanted(make_run, row):
    source = make_run([row(bytes(1000)) for _ in range(1000)])
    sizes = [int(piece.ends[-1]) for piece in read_entries(source, bytes_wanted=200_000)]
    assert len(sizes) > 4
    assert max(sizes) <= 200_000


def change(source: RunSource, position: int, value: bytes, *, with_checksum: bool = False) -> RunSource:
    """Overwrite bytes of the run; `with_checksum` makes its descriptor agree, as after a bug in the writer."""
    from crc32c import crc32c

    path = Path(source.path)
    data = bytearray(path.read_bytes())
    data[position : position + len(value)] = value
    path.write_bytes(data)
    if not with_checksum:
        return source
    descriptor = msgspec.structs.replace(source.descriptor, checksum=f"{crc32c(data):08x}")
    return msgspec.structs.replace(source, descriptor=descriptor)


def second_entry_at(source: RunSource) -> int:
    data = Path(source.path).read_bytes()
    return [position for position, *_ in iterate_entries(data, HEADER_BYTES, len(data) - 40)][1]


def test_a_changed_byte_is_found_and_named(make_run, row):
    source = make_run([row(b"one"), row(b"two"), row(b"three")])
    at = second_entry_at(source)
    change(source, at + HEADER_BYTES + 5, b"\xee")
    with pytest.raises(Corrupt, match=f"{source.path}.*wrong checksum at byte {at}") as caught:
        all_bodies(source)
    assert caught.value.code is ErrorCode.SEGMENT_CORRUPT


@pytest.mark.parametrize(
    ("field_at", "value", "why"),
    [
        (0, b"XX", "no entry of version"),
        (2, b"\x09", "no entry of version"),
        (3, b"\x05", "carries no messages"),
        (8, b"\xff\xff\x00\x00", "beyond"),
        (12, b"\x02", "wrong count"),
        (16, b"\x08", "another topic"),
        (24, b"\x09", "does not continue"),
    ],
)
def test_headers_that_do_not_fit_are_refused_even_if_the_checksum_does(make_run, row, field_at, value, why):
    source = make_run([row(b"one"), row(b"two"), row(b"three")])
    at = second_entry_at(source)
    damaged = change(source, at + field_at, value, with_checksum=True)
    with pytest.raises(Corrupt, match=f"{why}.* at byte {at}:"):
        all_bodies(damaged)


def test_another_run_than_described_is_refused(make_run, row):
    source = make_run([row(b"one"), row(b"two")])
    fewer = msgspec.structs.replace(source.descriptor, entry_count=3)
    with pytest.raises(Corrupt, match="another run"):
        all_bodies(msgspec.structs.replace(source, descriptor=fewer))


def test_a_short_or_missing_file_is_corrupt(make_run, row):
    source = make_run([row(b"one"), row(b"two")])
    path = Path(source.path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(
        Corrupt, match=f"{source.descriptor.size - 1} bytes instead of {source.descriptor.size}"
    ):
        all_bodies(source)
    path.unlink()
    with pytest.raises(Corrupt, match="missing"):
        all_bodies(source)


def test_what_the_disk_refuses_may_be_tried_again(make_run, row):
    source = make_run([row(b"one")])
    directory = msgspec.structs.replace(source, path=str(Path(source.path).parent))
    size = Path(source.path).parent.stat().st_size
    directory = msgspec.structs.replace(
        directory, descriptor=msgspec.structs.replace(source.descriptor, size=size)
    )
    with pytest.raises(Unavailable, match="cannot be read"):
        all_bodies(directory)
