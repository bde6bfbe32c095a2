"""When each message is due, so that a slow broker cannot slow down the clock it is measured by.

Up to 1,000 messages a second each has its own moment; beyond that they are due in groups, one every
millisecond. Latency counts from the moment a message was due, not from when it was sent (coordinated omission).
"""

from typing import Final

GROUPS_PER_SECOND_MAX: Final = 1000


class Pace:
    """Groups of messages at equal distances from a beginning; pure arithmetic on nanoseconds."""

    def __init__(self, *, rate: float, begin_ns: int) -> None:
        self._begin_ns = begin_ns
        groups_per_second = min(rate, GROUPS_PER_SECOND_MAX)
        self.interval_ns = max(1, round(1e9 / groups_per_second))
        self._per_group = rate / groups_per_second
        self._group = 0

    def due(self, now_ns: int) -> tuple[int, int] | None:
        """The next group that is due: when it should have been sent, and how many messages; None if none is."""
        due_ns = self.next_due_ns
        if now_ns < due_ns:
            return None
        first = int(self._group * self._per_group)
        self._group += 1
        return due_ns, int(self._group * self._per_group) - first

    @property
    def next_due_ns(self) -> int:
        return self._begin_ns + self._group * self.interval_ns
