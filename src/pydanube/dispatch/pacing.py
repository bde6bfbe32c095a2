"""How fast a subscription may send: a token bucket that refills continuously."""

from typing import Final

UNLIMITED: Final = 1 << 59
_TOKEN: Final = 1000
"""A token is counted in thousandths, so that a millisecond at any whole rate is a whole number."""


class Pacer:
    """Holds at most one second's worth of tokens; a rate of 0 means no limit.

    A batch is sent whole as soon as there is a token, and leaves a debt that later ones pay back.
    """

    __slots__ = ("_filled_ms", "_rate", "_tokens", "is_dry")

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._tokens = rate * _TOKEN
        self._filled_ms = -1
        self.is_dry = False
        """Whether more would have been sent had there been more tokens."""

    def set_rate(self, rate: int) -> None:
        """Change the rate; what was saved up beyond the new capacity is forfeit."""
        unlimited_before = self._rate == 0
        self._rate = rate
        self._tokens = rate * _TOKEN if unlimited_before else min(self._tokens, rate * _TOKEN)

    def allowance(self, now_ms: int) -> int:
        """How many messages may be sent now; below 0 while a debt is paid back."""
        if self._rate == 0:
            return UNLIMITED
        if self._filled_ms < 0:
            self._filled_ms = now_ms
        elif now_ms > self._filled_ms:
            refilled = self._tokens + (now_ms - self._filled_ms) * self._rate
            self._tokens = min(refilled, self._rate * _TOKEN)
            self._filled_ms = now_ms
        return self._tokens // _TOKEN

    def spend(self, messages: int) -> None:
        if self._rate != 0:
            self._tokens -= messages * _TOKEN

    def next_token_ms(self) -> int:
        """When `allowance` will be at least 1, if it was 0 when asked last."""
        missing = _TOKEN - self._tokens
        if self._rate == 0 or missing <= 0:
            return self._filled_ms
        return self._filled_ms + (missing + self._rate - 1) // self._rate
