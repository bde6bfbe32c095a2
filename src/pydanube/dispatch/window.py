"""The dispatch window: what was read from the log and is not settled yet, and the cursor behind it."""

from abc import ABC, abstractmethod
from heapq import heappop, heappush
from itertools import pairwise
from typing import Final

from pydanube.dispatch.entry import DELAYED, NEVER, READY, SETTLED, Entry

DELAYED_MAX: Final = 10_000
"""How many delayed messages are kept beside the window; more than these take places in it."""

_SETTLED_KEPT: Final = 64
"""How many settled entries may linger in log order before they are swept out."""


class DispatchWindow(ABC):
    """Entries may be settled in any order; the cursor moves over the settled ones in front.

    Invariant: every offset up to `cursor` is settled, and `cursor + 1` is in the window or not offered yet. So
    a restart from a saved cursor may repeat a message but never misses one.
    """

    # No kind of subscription has more than 29 attributes: from 30 on the interpreter gives up the layout that
    # instances share, and every message costs a fifth more (measured on 3.11).

    def __init__(self, cursor: int, messages_max: int, bytes_max: int) -> None:
        self.cursor = cursor
        """The highest offset such that it and all before are settled; -1 if there is none."""
        self.next_offset = cursor + 1
        """The offset to be offered next."""
        self.bytes_held = 0
        """Bytes of the messages in the window; a batch counts whole until its last message is settled."""
        self.delayed = 0
        """How many of the messages in the window have their delivery time still to come."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._entries: dict[int, Entry] = {}
        """By first offset."""
        self._log: list[Entry] = []
        """The entries in log order, from `_head` on; settled ones may lie between the others."""
        self._keyed = False
        """Whether entries stand in queues by key."""
        self._head = 0
        self._turn = 0
        """Where in the log the entries begin that had no turn to be sent yet; for those who send in log order."""
        self._delays: list[tuple[int, int, str | bytes]] = []
        """Heap of when a delayed entry is to be sent, its offset and its key."""
        self._surplus = 0
        """How many more messages than entries are in the window."""
        self._sharing: dict[int, int] = {}
        """By base: how many entries hold a message that another entry, split from the same one, accounts for."""

    @property
    def messages_held(self) -> int:
        """How many messages are in the window, in any state."""
        return len(self._entries) + self._surplus

    @abstractmethod
    def _left_queue(self, entry: Entry) -> None:
        """The head of a key's queue was settled."""

    def _settle(self, entry: Entry) -> None:
        """Take an entry out of the window and let the cursor follow."""
        del self._entries[entry.offset]
        if entry.count != 1 or self._sharing:
            self._settle_range(entry)
        else:
            self.bytes_held -= len(entry.message)
        entry.state = SETTLED
        entry.message = b""
        if entry.key_queue is not None:
            self._left_queue(entry)
        log = self._log
        head = self._head
        if log[head] is not entry:
            if len(log) > 2 * len(self._entries) + _SETTLED_KEPT:
                self._sweep()
            return
        head += 1
        end = len(log)
        while head < end and log[head].state == SETTLED:
            head += 1
        if head == end:
            self.cursor = self.next_offset - 1
            log.clear()
            self._head = 0
            self._turn = 0
            return
        self.cursor = log[head].offset - 1
        self._head = head
        if head > len(self._entries) + _SETTLED_KEPT:
            self._sweep()

    def _sweep(self) -> None:
        """Let go of settled entries; done rarely enough to cost little per message."""
        had_turn = len([entry for entry in self._log[: self._turn] if entry.state != SETTLED])
        self._log = [entry for entry in self._log if entry.state != SETTLED]
        self._head = 0
        self._turn = had_turn

    def _forget_all(self, cursor: int) -> None:
        """Empty the window and go on behind another cursor."""
        self._entries.clear()
        self._log.clear()
        self._head = 0
        self._turn = 0
        self._delays.clear()
        self.delayed = 0
        self._sharing.clear()
        self._surplus = 0
        self.bytes_held = 0
        self.cursor = cursor
        self.next_offset = cursor + 1

    # Delays.

    @abstractmethod
    def _fell_due(self, entry: Entry, key: str | bytes) -> None:
        """The delivery time of an entry has come."""

    def _delay(self, entry: Entry, key: str | bytes, not_before_ms: int) -> None:
        entry.state = DELAYED
        if entry.expires_ms == 0:
            entry.expires_ms = NEVER
        self.delayed += entry.count
        heappush(self._delays, (not_before_ms, entry.offset, key))

    def _end_delays(self, now_ms: int) -> None:
        delays = self._delays
        while delays and delays[0][0] <= now_ms:
            _, offset, key = heappop(delays)
            entry = self._entries[offset]
            self.delayed -= entry.count
            entry.state = READY
            self._fell_due(entry, key)

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
        """Cut an entry that was sent in two, equal but for their offsets; return the second, from `offset` on."""
        place = self._last_not_behind(entry.offset)
        behind = Entry(
            offset,
            entry.message,
            entry.offset + entry.count - offset,
            entry.base,
            entry.expires_ms,
            entry.append_ms,
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
        self._turn += 1
        self._sharing[entry.base] = self._sharing.get(entry.base, 0) + 1
        return behind

    def _add_range(self, entry: Entry) -> None:
        self._surplus += entry.count - 1

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
        delayed = [entry for entry in unsettled if entry.state == DELAYED]
        assert self.delayed == sum(entry.count for entry in delayed)
        assert sorted(offset for _, offset, _ in self._delays) == [entry.offset for entry in delayed]
        assert all(entry.attempts == 0 and entry.expires_ms != 0 for entry in delayed)
