"""Decoded row groups in memory, within a bound of bytes. No I/O."""

from collections import OrderedDict
from typing import NamedTuple

from pydanube.history.segment_rows import RowGroup


class GroupKey(NamedTuple):
    segment: str
    """Its key in the durable store."""
    number: int


class GroupCache:
    """The row groups used last; `reserved` bytes are for those being loaded.

    Groups and reservations together stay within `bytes_max`, but for one group that does not fit: the one loaded last
    is kept in any case, so that its reader does not fetch it again for each part of it.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self.reserved = 0
        self._groups: OrderedDict[GroupKey, RowGroup] = OrderedDict()
        self._finished: OrderedDict[GroupKey, None] = OrderedDict()

    def get(self, key: GroupKey) -> RowGroup | None:
        group = self._groups.get(key)
        if group is not None:
            self._groups.move_to_end(key)
            self._finished.pop(key, None)
        return group

    def __contains__(self, key: GroupKey) -> bool:
        return key in self._groups

    def finish(self, key: GroupKey) -> None:
        """A reader has read to the end of it: it may go before those that somebody is in."""
        if key in self._groups:
            self._finished[key] = None

    def can_reserve(self, size: int) -> bool:
        """Whether what is loaded now leaves room for so much; always if nothing is."""
        return self.reserved == 0 or self.reserved + size <= self.bytes_max

    def can_spare(self, size: int) -> bool:
        """Whether there is room without dropping a group that somebody may be in."""
        idle = sum([self._groups[key].memory_bytes for key in self._finished])
        return self.used - idle + self.reserved + size <= self.bytes_max

    def reserve(self, size: int) -> None:
        self.reserved += size
        self._make_room()

    def release(self, size: int) -> None:
        self.reserved -= size

    def add(self, key: GroupKey, group: RowGroup) -> None:
        self.discard(key)
        self._groups[key] = group
        self.used += group.memory_bytes
        self._make_room(keep=key)

    def discard(self, key: GroupKey) -> None:
        group = self._groups.pop(key, None)
        self._finished.pop(key, None)
        if group is not None:
            self.used -= group.memory_bytes

    def forget(self, segment: str) -> None:
        for key in [key for key in self._groups if key.segment == segment]:
            self.discard(key)

    def clear(self) -> None:
        self._groups.clear()
        self._finished.clear()
        self.used = 0

    def _make_room(self, keep: GroupKey | None = None) -> None:
        while self.used + self.reserved > self.bytes_max:
            victim = next((key for key in (*self._finished, *self._groups) if key != keep), None)
            if victim is None:
                return
            self.discard(victim)
