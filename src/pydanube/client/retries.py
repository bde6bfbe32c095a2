"""How often, how patiently and how long something is tried again."""

from dataclasses import dataclass
from random import uniform

from pydanube.kernel.errors import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """Bounds of trying again: whichever is reached first ends it.

    Pauses double from `backoff` to `backoff_max` seconds and are shortened at random by up to half, so that many
    clients of one broker do not come back in step.
    """

    attempts_max: int = 10
    backoff: float = 0.05
    backoff_max: float = 5.0
    seconds_max: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts_max < 0 or self.seconds_max < 0 or not 0 <= self.backoff <= self.backoff_max:
            raise Rejected(f"{self} makes no sense: expected counts and 0 <= backoff <= backoff_max")

    def pause(self, attempt: int) -> float:
        """Seconds before the given retry, counted from 1."""
        doubled = self.backoff * (1 << min(attempt - 1, 32))
        return min(doubled, self.backoff_max) * uniform(0.5, 1.0)


class Patience:
    """What is left of `Retries` since things last went well."""

    def __init__(self, retries: Retries) -> None:
        self._retries = retries
        self.attempts = 0
        self._since: float | None = None

    def succeeded(self) -> None:
        self.attempts = 0
        self._since = None

    def failed(self, now: float) -> float | None:
        """Seconds to wait before the next try, or None if there shall be none."""
        if self._since is None:
            self._since = now
        self.attempts += 1
        pause = self._retries.pause(self.attempts)
        over = now + pause - self._since > self._retries.seconds_max
        return None if over or self.attempts > self._retries.attempts_max else pause
