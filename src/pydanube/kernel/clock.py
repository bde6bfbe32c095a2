"""Time and chance as parameters: the composition root passes the real ones, tests their own."""

from typing import Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall time, Unix milliseconds."""
        ...

    def monotonic_ms(self) -> int:
        """Time that only grows, for deadlines."""
        ...


class Dice(Protocol):
    def new_id(self) -> int:
        """A random id in 1 … 2^62: never 0 and positive in a signed 64-bit integer."""
        ...
