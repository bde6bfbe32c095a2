"""The dispatch window: what was read from the log and is not settled yet, and the cursor behind it."""

from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Final

from pydanube.dispatch.entry import SETTLED, Entry

_SETTLED_KEPT: Final = 64
"""How many settled entries may linger in log order before they are swept out."""


class DispatchWindow(ABC):
    """Entries may be settled in any order; the cursor moves over the settled ones in front.

    Invariant: every offset up to `cursor` is settled, and `cursor + 1` is in the window or not offered yet. So
    a restart from a saved cursor may repeat a message but never misses one.
    """

    def __init__(self, cursor: int, messages_max: int, bytes_max: int) -> None:
        self.cursor = cursor
        """The highest offset such that it and all before are settled; -1 if there is none."""
        self.next_offset = cursor + 1
        """The offset to be offered next."""
        self.bytes_held = 0
        """Bytes of the messages in the window; a batch counts whole until its last message is settled."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._entries: dict[int, Entry] = {}
        """By first offset."""
        self._log: list[Entry] = []
        """The entries in log order, from `_head` on; settled ones may lie between the others."""
        self._head = 0
        self._surplus = 0
        """How many more messages than entries are in the window."""
        self._sharing: dict[int, int] = {}
        """By base: how many entries hold a message that another entry, split from the same one, accounts for."""

    @property
    def messages_held(self) -> int:
        """How many messages are in the window, in any state."""
        return len(self._entries) + self._surplus

    @abstractmethod
    def _left_window(self, entry: Entry) -> None:
        """An entry was settled."""

    def _add(self, entry: Entry) -> None:
        self._entries[entry.offset] = entry
        self._log.append(entry)
        self.bytes_held += len(entry.message)
        if entry.count != 1:
            self._surplus += entry.count - 1

    def _settle(self, entry: Entry) -> None:
        """Take an entry out of the window and let the cursor follow."""
        del self._entries[entry.offset]
        if entry.count != 1 or self._sharing:
            self._settle_range(entry)
        else:
            self.bytes_held -= len(entry.message)
        entry.state = SETTLED
        entry.message = b""
        entry.consumer = None
        self._left_window(entry)
        if self._log[self._head] is entry:
            self._advance_cursor()
        elif len(self._log) > 2 * len(self._entries) + _SETTLED_KEPT:
            self._sweep()

    def _advance_cursor(self) -> None:
        log = self._log
        head = self._head + 1
        while head < len(log) and log[head].state == SETTLED:
            head += 1
        self._head = head
        if head == len(log):
            self.cursor = self.next_offset - 1
            log.clear()
            self._head = 0
        else:
            self.cursor = log[head].offset - 1
            if head > len(self._entries) + _SETTLED_KEPT:
                self._sweep()

    def _sweep(self) -> None:
        """Let go of settled entries; done rarely enough to cost little per message."""
        self._log = [entry for entry in self._log if entry.state != SETTLED]
        self._head = 0

    def _forget_all(self, cursor: int) -> None:
        """Empty the window and go on behind another cursor."""
        self._entries.clear()
        self._log.clear()
        self._head = 0
        self._sharing.clear()
        self._surplus = 0
        self.bytes_held = 0
        self.cursor = cursor
        self.next_offset = cursor + 1

    # Ranges.

    def _overlapping(self, first: int, last: int) -> list[Entry]:
        """The entries that hold any offset of first..last, in log order."""
        found: list[Entry] = []
        if first > last:
            return found
        log = self._log
        place = self._last_not_behind(first)
        while place < len(log) and log[place].offset <= last:
            entry = log[place]
            if entry.state != SETTLED and entry.offset + entry.count > first:
                found.append(entry)
            place += 1
        return found

    def _last_not_behind(self, offset: int) -> int:
        """The place in the log of the last entry that begins at or before `offset`; the head if there is none."""
        log = self._log
        low = self._head
        high = len(log)
        while low < high:
            middle = (low + high) // 2
            if log[middle].offset <= offset:
                low = middle + 1
            else:
                high = middle
        return max(low - 1, self._head)

    def _carve(self, entry: Entry, first: int, last: int) -> Entry:
        """The part of an entry that lies in first..last, as an entry of its own; the rest stays as it is."""
        if first > entry.offset:
            entry = self._split(entry, first)
        if last < entry.offset + entry.count - 1:
            self._split(entry, last + 1)
        return entry

    def _split(self, entry: Entry, offset: int) -> Entry:
        """Cut an entry in two equal but for their offsets; return the one that begins at `offset`."""
        place = self._last_not_behind(entry.offset)
        behind = Entry(
            offset, entry.message, entry.offset + entry.count - offset, entry.base, entry.expires_ms
        )
        behind.state = entry.state
        behind.attempts = entry.attempts
        behind.due_ms = entry.due_ms
        behind.consumer = entry.consumer
        behind.reason = entry.reason
        entry.count = offset - entry.offset
        self._surplus -= 1
        self._entries[offset] = behind
        self._log.insert(place + 1, behind)
        self._sharing[entry.base] = self._sharing.get(entry.base, 0) + 1
        return behind

    def _settle_range(self, entry: Entry) -> None:
        self._surplus -= entry.count - 1
        others = self._sharing.get(entry.base, 0)
        if others == 0:
            self.bytes_held -= len(entry.message)
        elif others == 1:
            del self._sharing[entry.base]
        else:
            self._sharing[entry.base] = others - 1

    def validate(self) -> None:
        """Assert every invariant; for tests, it looks at the whole window."""
        unsettled = [entry for entry in self._log if entry.state != SETTLED]
        offsets = [entry.offset for entry in unsettled]
        assert offsets == sorted(self._entries), (offsets, sorted(self._entries))
        assert self.cursor == (offsets[0] if offsets else self.next_offset) - 1, (self.cursor, offsets)
        assert self.messages_held == sum(entry.count for entry in unsettled)
        counted = dict(self._sharing)
        held = 0
        for entry in unsettled:
            assert self._entries[entry.offset] is entry, entry.describe()
            assert entry.count > 0, entry.describe()
            assert entry.base <= entry.offset, entry.describe()
            if counted.get(entry.base, 0) > 0:
                counted[entry.base] -= 1
            else:
                held += len(entry.message)
        assert not any(counted.values()), counted
        assert self.bytes_held == held, (self.bytes_held, held)
        for before, after in pairwise(unsettled):
            assert before.offset + before.count <= after.offset, before.describe()
        if unsettled:
            assert unsettled[-1].offset + unsettled[-1].count <= self.next_offset
        assert len(self._log) <= 3 * len(self._entries) + 2 * _SETTLED_KEPT + 2, len(self._log)
