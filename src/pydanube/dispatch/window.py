"""The dispatch window: what was read from the log and is not settled yet, and the cursor behind it."""

from abc import ABC, abstractmethod
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
        """Bytes of the messages in the window."""
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._entries: dict[int, Entry] = {}
        self._log: list[Entry] = []
        """The entries in log order, from `_head` on; settled ones may lie between the others."""
        self._head = 0

    @property
    def messages_held(self) -> int:
        """How many messages are in the window, in any state."""
        return len(self._entries)

    @abstractmethod
    def _left_window(self, entry: Entry) -> None:
        """An entry was settled."""

    def _add(self, entry: Entry) -> None:
        self._entries[entry.offset] = entry
        self._log.append(entry)
        self.bytes_held += len(entry.message)

    def _settle(self, entry: Entry) -> None:
        """Take an entry out of the window and let the cursor follow."""
        del self._entries[entry.offset]
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

    def validate(self) -> None:
        """Assert every invariant; for tests, it looks at the whole window."""
        unsettled = [entry for entry in self._log if entry.state != SETTLED]
        offsets = [entry.offset for entry in unsettled]
        assert offsets == sorted(self._entries), (offsets, sorted(self._entries))
        assert self.cursor == (offsets[0] if offsets else self.next_offset) - 1, (self.cursor, offsets)
        assert self.bytes_held == sum(len(entry.message) for entry in unsettled)
        assert len(self._log) <= 3 * len(self._entries) + 2 * _SETTLED_KEPT + 2, len(self._log)
