"""Did everything arrive, once, in order, unchanged? Asked per run of messages, not per message."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from crc32c import crc32c


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was wrong with what a subscription received; all zero is right."""

    lost: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    foreign: int = 0
    """Numbers nobody sent."""
    corrupt: int = 0
    """Topics whose bytes are not those that were sent."""

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(
            self.lost + other.lost,
            self.duplicated + other.duplicated,
            self.out_of_order + other.out_of_order,
            self.foreign + other.foreign,
            self.corrupt + other.corrupt,
        )

    @property
    def total(self) -> int:
        return self.lost + self.duplicated + self.out_of_order + self.foreign + self.corrupt

    @property
    def text(self) -> str:
        wrong = {
            "lost": self.lost,
            "duplicated": self.duplicated,
            "out of order": self.out_of_order,
            "never sent": self.foreign,
            "topics with changed bytes": self.corrupt,
        }
        return ", ".join(f"{count:,} {what}" for what, count in wrong.items() if count)


class SequenceCheck:
    """Ticks off the numbers 0 … count-1 of one topic as one subscription receives them.

    Consumers of a shared subscription each see growing numbers, so order is judged per consumer.
    """

    def __init__(self, count: int, *, checksum: int | None = None, is_all: bool = True) -> None:
        """`is_all`: the topic holds no others, so what comes beyond `count` must have come before."""
        self._is_all = is_all
        self._seen = bytearray(count)
        self._last: dict[int, int] = {}
        self._expected_checksum = checksum
        self._checksum = 0
        self._duplicated = 0
        self._out_of_order = 0
        self._foreign = 0
        self.received = 0

    @property
    def is_complete(self) -> bool:
        return self.received >= len(self._seen)

    def receive_run(self, consumer: int, first: int, count: int) -> None:
        """Numbers `first` to `first + count - 1`, in this order: the usual case, at the cost of one."""
        seen = self._seen
        end = first + count
        if first > self._last.get(consumer, -1) and end <= len(seen) and seen.find(1, first, end) < 0:
            seen[first:end] = b"\1" * count
            self._last[consumer] = end - 1
            self.received += count
        else:
            self.receive(consumer, range(first, end))

    def receive(self, consumer: int, numbers: Iterable[int]) -> None:
        """Any numbers, in the order they came."""
        last = self._last.get(consumer, -1)
        for number in numbers:
            if not 0 <= number < len(self._seen):
                self._foreign += 1
                continue
            if self._seen[number]:
                self._duplicated += 1
                continue
            self._seen[number] = 1
            self.received += 1
            if number < last:
                self._out_of_order += 1
            else:
                last = number
        self._last[consumer] = last

    def receive_unnumbered(self, count: int) -> None:
        """Messages that carry no number: they can only be counted."""
        fresh = min(count, len(self._seen) - self.received)
        self.received += fresh
        if self._is_all:
            self._duplicated += count - fresh

    def receive_bytes(self, payloads: bytes | memoryview) -> None:
        """All payloads of a run, one behind the other."""
        if self._expected_checksum is not None:
            self._checksum = crc32c(payloads, self._checksum)

    def verdict(self) -> Verdict:
        lost = len(self._seen) - self.received
        # Bytes in another order have another checksum: then only the numbers tell.
        in_order = not (lost or self._duplicated or self._out_of_order or self._foreign)
        changed = self._expected_checksum is not None and self._checksum != self._expected_checksum
        return Verdict(
            lost=lost,
            duplicated=self._duplicated,
            out_of_order=self._out_of_order,
            foreign=self._foreign,
            corrupt=int(in_order and changed),
        )


def consecutive(numbers: list[int]) -> Sequence[int]:
    """The numbers as a range if they are one."""
    run = range(numbers[0], numbers[0] + len(numbers))
    return run if numbers == list(run) else numbers
