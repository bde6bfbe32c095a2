"""The entries of a run as arrays: checked and taken apart many at a time.

Entries are chained by their lengths, which would mean one step for each. The run's index knows one entry per 64 KiB, so
all the stretches between two of those are walked at the same time.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from pydanube.entries.entry import HEADER_BYTES as ENTRY_HEADER_BYTES
from pydanube.entries.entry import VERSION, DamagedEntryError, Kind, iterate_entries
from pydanube.entries.extents import Extents, Place, table_bytes
from pydanube.entries.run_file import (
    FOOTER_BYTES,
    HEADER_BYTES,
    DamagedRunError,
    RunDescriptor,
    RunIndex,
    check_header,
    decode_footer,
    decode_index,
    footer_position,
)
from pydanube.history.convert_job import RunSource
from pydanube.history.field_scan import SPARE_BYTES, IntArray, ScannedBytes
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable

CHECK_BYTES: Final = 64 << 10
"""Read at a time, and no further ahead: what is being read lies before the journal's syncs in the disk's queue. Those took
up to 20 ms beside the megabytes a system reads ahead, 2.8 ms (p99) beside pieces of 256 KiB, and 0.5 beside these."""

_ENTRY_HEADER: Final = np.dtype(
    [
        ("magic", "S2"),
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "<u4"),
        ("length", "<u4"),
        ("messages", "<u4"),
        ("topic_id", "<u8"),
        ("base_offset", "<u8"),
        ("producer_id", "<u8"),
        ("sequence", "<u8"),
        ("append_ms", "<i8"),
        ("epoch", "<u4"),
        ("crc", "<u4"),
    ]
)
_LENGTH_AT: Final = 8


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries one behind the other: element i of each array is of entry i. All of them carry messages."""

    data: ScannedBytes
    """What the entries lie in, with SPARE_BYTES or more behind the last one."""
    kinds: npt.NDArray[np.uint8]
    starts: IntArray
    """Where in `data` bodies begin."""
    ends: IntArray
    messages: IntArray
    bases: IntArray
    """Offset of the first message."""
    append_ms: IntArray

    def __len__(self) -> int:
        return len(self.kinds)

    def part(self, first: int, end: int) -> "Entries":
        return Entries(
            self.data,
            self.kinds[first:end],
            self.starts[first:end],
            self.ends[first:end],
            self.messages[first:end],
            self.bases[first:end],
            self.append_ms[first:end],
        )


def read_entries(source: RunSource, *, bytes_wanted: int) -> Iterator[Entries]:
    """All entries of a run, in pieces of about so many bytes, after the whole file was checked.

    Raises:
        Corrupt: the file is missing or not what was written; the text names it and the byte.
        Unavailable: the disk cannot read it.
    """
    try:
        with _opened(source) as run:
            try:
                yield from _read_open(run, bytes_wanted)
            except (DamagedRunError, DamagedEntryError) as error:
                raise _corrupt(source, f"{error.why} at byte {run.byte_at(error.position)}") from error
    except FileNotFoundError as error:
        raise _corrupt(source, "it is missing") from error
    except OSError as error:
        raise Unavailable(
            f"run {source.path} cannot be read: {error.strerror or error}: see to the disk, it is tried again",
            ErrorCode.STORAGE_FAILED,
        ) from error


def load_run(source: RunSource, *, is_wanted: Callable[[], bool]) -> None:
    """Have the system keep the run in memory for who reads it next. What is wrong with it, he will say."""
    with suppress(OSError, DamagedRunError), _opened(source) as run:
        for _ in run.pieces():
            if not is_wanted():
                return


@contextmanager
def _opened(source: RunSource) -> Iterator["_OpenRun"]:
    file = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        yield _OpenRun(file, source.descriptor)
    finally:
        os.close(file)


def _corrupt(source: RunSource, why: str) -> Corrupt:
    return Corrupt(
        f"run {source.path} cannot become part of a segment: {why}: restore it from a copy",
        ErrorCode.SEGMENT_CORRUPT,
    )


class _OpenRun:
    """The bytes of one run in a file that is open; positions are those in the run."""

    def __init__(self, file: int, descriptor: RunDescriptor) -> None:
        self.descriptor = descriptor
        self._file = file
        self._table: Extents | None = None

    def read(self, position: int, size: int) -> bytes:
        pieces = [os.pread(self._file, length, at) for at, length in self._located(position, size)]
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if len(data) != size:
            raise DamagedRunError(position + len(data), "the run is cut short")
        return data

    def size(self) -> int:
        """How much of it there is: more than its size if something follows that does not belong into its file."""
        run = self.descriptor
        file_bytes = os.fstat(self._file).st_size
        if run.places:
            located = self._located(0, run.size)
            return sum(max(0, min(length, file_bytes - at)) for at, length in located)
        behind = file_bytes - run.position
        return min(behind, run.size) if run.bundle else behind

    def checksum(self) -> str:
        checksum = 0
        for piece in self.pieces():
            checksum = crc32c(piece, checksum)
        return f"{checksum:08x}"

    def pieces(self) -> Iterator[memoryview]:
        """All of it, one piece after the other in the same memory."""
        piece = memoryview(bytearray(CHECK_BYTES))
        for at, length in self._located(0, self.descriptor.size):
            done = 0
            while done < length and (read := os.preadv(self._file, [piece[: length - done]], at + done)):
                yield piece[:read]
                done += read

    def byte_at(self, position: int) -> int:
        """Where in the file a byte of the run is."""
        return self.descriptor.position + position if self._table is None else self._table.byte_at(position)

    def _located(self, position: int, size: int) -> Iterator[Place]:
        run = self.descriptor
        if not run.places:
            yield run.position + position, size
            return
        if self._table is None:
            table = os.pread(self._file, table_bytes(run.places), run.position)
            self._table = Extents.decode(table, run.places)
        yield from self._table.locate(position, size)

    def index(self) -> RunIndex:
        size = self.descriptor.size
        position, length, crc = decode_footer(self.read(max(footer_position(size), 0), FOOTER_BYTES), size)
        return decode_index(self.read(position, length), position, crc)


def _read_open(run: _OpenRun, bytes_wanted: int) -> Iterator[Entries]:
    descriptor = run.descriptor
    _check_bytes(run)
    check_header(run.read(0, HEADER_BYTES), descriptor)
    index = run.index()
    edges = np.array([*index.positions, index.end], np.int64)
    offset = descriptor.start_offset
    count = 0
    first = 0
    while first < len(index.positions):
        end = max(int(np.searchsorted(edges, edges[first] + bytes_wanted, "right")) - 1, first + 1)
        entries = _entries_between(run, edges[first : end + 1], descriptor.topic_id, offset)
        offset = int(entries.bases[-1] + entries.messages[-1])
        count += len(entries)
        first = end
        yield entries
    if (offset, count) != (descriptor.next_offset, descriptor.entry_count):
        raise DamagedRunError(
            index.end,
            f"{count} entries up to offset {offset} instead of {descriptor.entry_count} up to {descriptor.next_offset} end",
        )


def _check_bytes(run: _OpenRun) -> None:
    """Compare size and checksum of the whole run; what differs is then looked for entry by entry."""
    descriptor = run.descriptor
    size = run.size()
    if size != descriptor.size:
        raise DamagedRunError(min(size, descriptor.size), f"{size} bytes instead of {descriptor.size} end")
    checksum = run.checksum()
    if checksum == descriptor.checksum:
        return
    check_header(run.read(0, HEADER_BYTES), descriptor)
    index = run.index()
    for _ in iterate_entries(run.read(0, index.end), HEADER_BYTES, index.end):
        pass
    raise DamagedRunError(0, f"bytes with checksum {checksum} instead of {descriptor.checksum} begin")


def _entries_between(run: _OpenRun, edges: IntArray, topic_id: int, offset: int) -> Entries:
    """The entries in the stretches between these positions, of which each begins an entry; the last ends one."""
    base = int(edges[0])
    # Index and footer follow the entries, so there always is something to spare.
    data = ScannedBytes(run.read(base, int(edges[-1]) - base + SPARE_BYTES))
    heads_at = _chained(data, edges[:-1] - base, edges[1:] - base, base)
    # Plain bytes are copied far faster than what has fields.
    headers = _at_every_byte(data, np.dtype(f"V{ENTRY_HEADER_BYTES}"))[heads_at].view(_ENTRY_HEADER)
    _check_headers(headers, heads_at + base, topic_id, offset)
    starts = heads_at + ENTRY_HEADER_BYTES
    return Entries(
        data,
        headers["kind"],
        starts,
        starts + headers["length"],
        headers["messages"].astype(np.int64),
        headers["base_offset"].astype(np.int64),
        headers["append_ms"],
    )


def _chained(data: ScannedBytes, at: IntArray, ends: IntArray, base: int) -> IntArray:
    """Positions of all entries that fill the stretches at data[at:ends]."""
    lengths = _at_every_byte(data, np.dtype("<u4"))
    found = []
    while at.size:
        found.append(at)
        behind = at + lengths[at + _LENGTH_AT] + ENTRY_HEADER_BYTES
        left = ends - behind
        if left.min() < 0:
            raise DamagedRunError(int(at[left.argmin()]) + base, "an entry reaches beyond one in the index")
        going = left > 0
        at, ends = (behind, ends) if going.all() else (behind[going], ends[going])
    return np.sort(np.concatenate(found))


def _check_headers(headers: npt.NDArray[np.void], at: IntArray, topic_id: int, offset: int) -> None:
    kinds, messages, bases = headers["kind"], headers["messages"], headers["base_offset"]
    _refuse(
        (headers["magic"] != b"DE") | (headers["version"] != VERSION), at, f"no entry of version {VERSION}"
    )
    _refuse((kinds != Kind.ROW) & (kinds != Kind.BATCH), at, "an entry that carries no messages")
    _refuse(headers["topic_id"] != topic_id, at, f"an entry of another topic than {topic_id}")
    _refuse((messages == 0) | ((kinds == Kind.ROW) & (messages != 1)), at, "an entry with a wrong count")
    expected = np.cumsum(messages, dtype=np.uint64) - messages + np.uint64(offset)
    _refuse(bases != expected, at, "an entry that does not continue the offsets")


def _at_every_byte(data: ScannedBytes, kind: "np.dtype[Any]") -> npt.NDArray[Any]:
    """The bytes as an array of such values that has one beginning at each byte: to be indexed, never copied."""
    count = max(len(data.buffer) - kind.itemsize + 1, 0)
    return np.ndarray((count,), kind, data.buffer, strides=(1,))


def _refuse(wrong: npt.NDArray[np.bool_], at: IntArray, why: str) -> None:
    if wrong.any():
        raise DamagedRunError(int(at[wrong.argmax()]), why)
