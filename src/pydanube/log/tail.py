"""The part of a topic that is in memory: everything not staged yet, and a little of what is.

One chunk per journal file, oldest first, so that staging a file frees whole chunks.
"""

from bisect import bisect_right
from collections import deque

from pydanube.entries.entry import (
    FLAG_TIMED,
    FLAGS_AT,
    HEADER_BYTES,
    decode_append_time,
    decode_append_times,
)

Row = tuple[int, bytes, int, bool]
"""Base offset and body of one entry as it was appended, when that was, and whether the entry is timed."""

ENTRY_OVERHEAD_BYTES = HEADER_BYTES + 160
"""What an entry costs in memory beside its body: header, three object heads, list slots, a number."""

NEVER_MS = -(1 << 63)
"""Before every time an entry can have."""


class Chunk:
    """The entries of one topic in one journal file."""

    __slots__ = (
        "bases",
        "bodies",
        "end",
        "file_sequence",
        "heads",
        "max_append_ms",
        "memory_bytes",
        "staged",
    )

    def __init__(self, file_sequence: int, start: int) -> None:
        self.file_sequence = file_sequence
        self.bases: list[int] = []
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.end = start
        self.max_append_ms = NEVER_MS
        self.memory_bytes = 0
        self.staged = False

    def add(self, base_offset: int, count: int, head: bytes, body: bytes, append_ms: int) -> None:
        self.bases.append(base_offset)
        self.heads.append(head)
        self.bodies.append(body)
        self.end = base_offset + count
        if append_ms > self.max_append_ms:  # noqa: PLR1730  (once per message: a call costs more)
            self.max_append_ms = append_ms
        self.memory_bytes += len(body) + ENTRY_OVERHEAD_BYTES

    def cut(self, end: int) -> None:
        """Forget the entries from `end` on: they never reached the disk."""
        keep = bisect_right(self.bases, end - 1)
        if keep == len(self.bases):
            return
        self.memory_bytes -= sum(map(len, self.bodies[keep:])) + ENTRY_OVERHEAD_BYTES * len(
            self.bodies[keep:]
        )
        del self.bases[keep:], self.heads[keep:], self.bodies[keep:]
        self.end = min(self.end, end)
        self.max_append_ms = max(decode_append_times(b"".join(self.heads)), default=NEVER_MS)


class Tail:
    """Chunks of one topic, contiguous and oldest first; never holds an empty one at its head."""

    __slots__ = ("chunks",)

    def __init__(self) -> None:
        self.chunks: deque[Chunk] = deque()

    def chunk_for(self, file_sequence: int, start: int) -> Chunk:
        """The chunk that takes entries of that file, made if it is the first of them."""
        if self.chunks and self.chunks[-1].file_sequence == file_sequence:
            return self.chunks[-1]
        chunk = Chunk(file_sequence, start)
        self.chunks.append(chunk)
        return chunk

    def first_offset(self, otherwise: int) -> int:
        """The oldest offset in memory, or `otherwise` if there is none."""
        for chunk in self.chunks:
            if chunk.bases:
                return chunk.bases[0]
        return otherwise

    def unstaged_start(self, otherwise: int) -> int:
        """The oldest offset that is not in a run yet, or `otherwise` if all are."""
        for chunk in self.chunks:
            if chunk.bases and not chunk.staged:
                return chunk.bases[0]
        return otherwise

    def cut(self, end: int) -> int:
        """Forget everything from `end` on; return how many bytes of memory that freed."""
        before = sum(chunk.memory_bytes for chunk in self.chunks)
        for chunk in self.chunks:
            chunk.cut(end)
        return before - sum(chunk.memory_bytes for chunk in self.chunks)

    def forget(self, chunk: Chunk) -> None:
        """Drop a staged chunk from memory; nothing happens if it is gone."""
        if chunk in self.chunks:
            self.chunks.remove(chunk)

    def clear(self) -> int:
        """Drop everything; return how many bytes of memory were not staged."""
        unstaged = sum(chunk.memory_bytes for chunk in self.chunks if not chunk.staged)
        self.chunks.clear()
        return unstaged

    def read(self, offset: int, *, end: int, messages_max: int, bytes_max: int) -> list[Row] | None:
        """Entries from the one that holds `offset` up to `end`; None if that one is not in memory.

        Ends before the entry that begins `messages_max` messages behind `offset`, or at `bytes_max`. At least
        one entry comes back however small these are, so that a reader always advances.
        """
        if offset >= end:
            return []
        place = self._find(offset)
        if place is None:
            return None
        rows: list[Row] = []
        chunk_number, index = place
        room = bytes_max
        stop = min(end, offset + max(messages_max, 1))
        for number in range(chunk_number, len(self.chunks)):
            chunk = self.chunks[number]
            bases, heads, bodies = chunk.bases, chunk.heads, chunk.bodies
            for i in range(index, len(bases)):
                base, body, head = bases[i], bodies[i], heads[i]
                room -= len(body)
                if base >= stop or (room < 0 and rows):
                    return rows
                rows.append((base, body, decode_append_time(head), head[FLAGS_AT] & FLAG_TIMED != 0))
            index = 0
        return rows

    def chunk_from_time(self, append_ms: int) -> Chunk | None:
        """The oldest chunk with an entry appended at that moment or later."""
        for chunk in self.chunks:
            if chunk.max_append_ms >= append_ms:
                return chunk
        return None

    def _find(self, offset: int) -> tuple[int, int] | None:
        # Readers are mostly near the end, so look there first.
        for number in range(len(self.chunks) - 1, -1, -1):
            bases = self.chunks[number].bases
            if bases and bases[0] <= offset:
                return number, bisect_right(bases, offset) - 1
        return None
