"""How values are spread: buckets of equal relative width, cheap enough for every message.

Sixteen buckets per power of two: a quantile is off by at most 1/32 of its value; below 32 it is exact.
The list of buckets grows to the largest value seen, at most `BUCKETS_MAX`.
"""

from collections.abc import Iterable, Sequence
from typing import Final

QUANTILES: Final[tuple[float, ...]] = (0.0, 0.5, 0.9, 0.95, 0.99, 0.999, 1.0)

VALUE_MAX: Final = (1 << 62) - 1
BUCKETS_MAX: Final = (62 - 5) * 16 + 32


class Distribution:
    """Counts of whole numbers from 0 to `VALUE_MAX`; anything beyond is counted as the nearest bound."""

    __slots__ = ("_buckets", "sum")

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._buckets: list[int] = [0] * 32
        self.sum = 0
        for value in values:
            self.record(value)

    def record(self, value: int) -> None:
        if value < 0:  # noqa: PLR1730 - max() would cost a call per message
            value = 0
        self.sum += value
        # The five leading bits choose the bucket: the shift is the power of two, the rest the sixteenth of it.
        shift = value.bit_length() - 5
        index = value if shift <= 0 else (shift << 4) + (value >> shift)
        try:
            self._buckets[index] += 1
        except IndexError:
            index = min(index, BUCKETS_MAX - 1)
            self._buckets += [0] * (index + 1 - len(self._buckets))
            self._buckets[index] += 1

    def record_many(self, value: int, times: int) -> None:
        """The same value that often: of a batch, its mean."""
        self.record(value)
        if times > 1:
            self.sum += value * (times - 1)
            shift = value.bit_length() - 5
            index = value if shift <= 0 else (shift << 4) + (value >> shift)
            self._buckets[min(index, BUCKETS_MAX - 1)] += times - 1

    @property
    def count(self) -> int:
        return sum(self._buckets)

    def quantiles(self, wanted: Sequence[float] = QUANTILES) -> list[float]:
        """The value at or below which each wanted share lies, in ascending order; 0 while nothing is recorded."""
        buckets = self._buckets[:]
        total = sum(buckets)
        if total == 0:
            return [0.0] * len(wanted)
        found: list[float] = []
        index = 0
        seen = buckets[0]
        for share in wanted:
            # Share 0 means the smallest value: the first bucket that holds anything.
            while seen == 0 or seen < share * total:
                index += 1
                seen += buckets[index]
            found.append(_middle(index))
        return found

    def copy(self) -> "Distribution":
        """A snapshot that later records do not touch."""
        other = Distribution()
        other._buckets = self._buckets[:]
        other.sum = self.sum
        return other


def _middle(index: int) -> float:
    if index < 32:
        return float(index)
    shift = (index >> 4) - 1
    low = (index - (shift << 4)) << shift
    return low + ((1 << shift) - 1) / 2
