"""Acknowledged offsets, collected into ranges. No I/O."""


class AckRanges:
    """Offsets acknowledged since they were last sent; in order, they cost one comparison each."""

    __slots__ = ("_first", "_ranges", "last")

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []
        self._first = -1
        self.last = -2
        """The offset added last, to which the next may be joined; negative if there is none."""

    def __bool__(self) -> bool:
        return self._first >= 0

    def add(self, first: int, last: int) -> None:
        """Add a range, both ends included."""
        if first != self.last + 1:
            if self._first >= 0:
                self._ranges.append((self._first, self.last))
            self._first = first
        self.last = last

    def take(self) -> list[tuple[int, int]]:
        """All ranges in order, none touching another; none are left here."""
        if self._first < 0:
            return []
        ranges, self._ranges = self._ranges, []
        ranges.append((self._first, self.last))
        self.clear()
        return ranges if len(ranges) == 1 else _merged(ranges)

    def clear(self) -> None:
        self._ranges = []
        self._first = -1
        self.last = -2


def ranges_of(offsets: list[int]) -> list[tuple[int, int]]:
    """The ranges that hold exactly these offsets."""
    ranges = AckRanges()
    for offset in offsets:
        ranges.add(offset, offset)
    return ranges.take()


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    ranges.sort()
    merged = [ranges[0]]
    for first, last in ranges:
        before, until = merged[-1]
        if first <= until + 1:
            merged[-1] = (before, max(until, last))
        else:
            merged.append((first, last))
    return merged
