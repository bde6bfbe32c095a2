"""What one topic remembers of its idempotent producers, so that a message sent twice is stored once.

Per producer the entries it appended last: their sequences and where they are. Bounded twice: of each
producer the last entries only, of all producers those that appended last. What is remembered depends on
nothing but the order of appends, so a replay of the journal ends in the same memory.

An append that is not committed yet may be taken back. Until then whatever it pushed out is kept aside.
"""

from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import NamedTuple

from pydanube.kernel.errors import Conflict, ErrorCode, Rejected

PRODUCERS_REMEMBERED_MAX = 1_000
"""Producers per topic; the one whose last append is oldest is forgotten first."""

ENTRIES_REMEMBERED = 16
"""Entries per producer whose place is known, beside those that are not committed yet."""

TOO_OLD = -1
"""The place of an entry that was appended once, but is not remembered any more."""


class SequenceGap(Conflict):
    """The sequences are not the next ones: go on with `expected_sequence`."""

    def __init__(self, text: str, expected_sequence: int) -> None:
        super().__init__(text, ErrorCode.SEQUENCE_GAP)
        self.expected_sequence = expected_sequence


class SentEntry(NamedTuple):
    """One entry of a producer: its sequences, both ends included, and its base offset."""

    first: int
    last: int
    base_offset: int


class ProducerMemory:
    """The producers of one topic, the one that appended last at the end."""

    __slots__ = ("_producers_max", "_pushed_out", "_sent")

    def __init__(self, producers_max: int = PRODUCERS_REMEMBERED_MAX) -> None:
        self._producers_max = producers_max
        self._sent: OrderedDict[int, list[SentEntry]] = OrderedDict()
        self._pushed_out: deque[tuple[int, int, list[SentEntry]]] = deque()
        """(offset of the append that did it, producer, its entries) while that append may be taken back."""

    def __len__(self) -> int:
        return len(self._sent)

    def last_sequence(self, producer_id: int) -> int:
        """The last sequence appended, 0 if the producer is not known."""
        sent = self._sent.get(producer_id)
        return 0 if sent is None else sent[-1].last

    def check(self, producer_id: int, sequence: int, count: int, *, committed_end: int) -> int | None:
        """None if these sequences come next, else the offset that the first of them got (or TOO_OLD).

        Raises:
            Rejected: these cannot be sequences.
            SequenceGap: they are neither the next ones nor all known.
        """
        if sequence < 1 or count < 1:
            raise Rejected(
                f"producer {producer_id} sent {count} messages from sequence {sequence} on: the first one is 1"
            )
        last = self.last_sequence(producer_id)
        if sequence == last + 1:
            return None
        if sequence > last or sequence + count - 1 > last:
            raise SequenceGap(
                f"producer {producer_id} sent sequences {sequence} to {sequence + count - 1}, but {last + 1} is "
                f"expected next{'' if last else ' (the topic does not know the producer, or not any more)'}: "
                f"send again from {last + 1} on",
                last + 1,
            )
        sent = self._sent[producer_id]
        place = bisect_right(sent, sequence, key=_first) - 1
        if place < 0:
            return TOO_OLD
        entry = sent[place]
        # More may be at hand than is remembered: see `_trim`.
        if place < len(sent) - ENTRIES_REMEMBERED and entry.base_offset < committed_end:
            return TOO_OLD
        return entry.base_offset + sequence - entry.first

    def add(
        self, producer_id: int, sequence: int, count: int, base_offset: int, *, committed_end: int
    ) -> None:
        """Remember an append of the sequences that come next."""
        entry = SentEntry(sequence, sequence + count - 1, base_offset)
        sent = self._sent.get(producer_id)
        if sent is not None:
            sent.append(entry)
            self._sent.move_to_end(producer_id)
            _trim(sent, committed_end)
            return
        self._sent[producer_id] = [entry]
        if len(self._sent) > self._producers_max:
            while self._pushed_out and self._pushed_out[0][0] < committed_end:
                self._pushed_out.popleft()
            self._pushed_out.append((base_offset, *self._sent.popitem(last=False)))

    def forget(self, producer_id: int) -> bool:
        """Whether there was something to forget."""
        if self._pushed_out:
            self._pushed_out = deque(item for item in self._pushed_out if item[1] != producer_id)
        return self._sent.pop(producer_id, None) is not None

    def take_back(self, end: int) -> None:
        """Be as if nothing had been appended from the offset `end` on."""
        # Whoever was pushed out by an append that counts stays so. A producer that came back since it was
        # pushed out by one that does not count has nothing but such appends, so no id is kept twice.
        candidates = [*self._sent.items(), *((who, sent) for by, who, sent in self._pushed_out if by >= end)]
        self._pushed_out.clear()
        for _, sent in candidates:
            del sent[bisect_left(sent, end, key=_base_offset) :]
        kept = [item for item in candidates if item[1]]
        self._sent = OrderedDict(sorted(kept, key=lambda item: item[1][-1].base_offset))

    def replace(self, producer_id: int, sent: Iterable[SentEntry]) -> None:
        """Remember exactly these entries of a producer, the last one to have appended so far."""
        self._sent[producer_id] = list(sent)
        self._sent.move_to_end(producer_id)

    def clear(self) -> None:
        self._sent.clear()
        self._pushed_out.clear()

    def facts(self, committed_end: int) -> list[tuple[int, tuple[SentEntry, ...]]]:
        """What a replay of everything appended so far would remember, in the order of last appends."""
        for sent in self._sent.values():
            _trim(sent, committed_end)
        return [(producer_id, tuple(sent[-ENTRIES_REMEMBERED:])) for producer_id, sent in self._sent.items()]


def _trim(sent: list[SentEntry], committed_end: int) -> None:
    """Drop what is behind ENTRIES_REMEMBERED committed entries: it cannot be needed by a take-back."""
    if len(sent) > ENTRIES_REMEMBERED and sent[ENTRIES_REMEMBERED].base_offset < committed_end:
        del sent[: bisect_left(sent, committed_end, key=_base_offset) - ENTRIES_REMEMBERED]


def _first(entry: SentEntry) -> int:
    return entry.first


def _base_offset(entry: SentEntry) -> int:
    return entry.base_offset
