"""What was asked for lately and is not there: an answer for whoever asks again at once, without asking the store."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from pydanube.schemas.recently_used import RecentlyUsed

K = TypeVar("K", bound=Hashable)


class RecentlyUnknown(Generic[K]):
    """Each key for `ms`, with the reason that was given; at most `count_max` of them."""

    def __init__(self, *, count_max: int, ms: int, now_ms: Callable[[], int]) -> None:
        self._ms = ms
        self._now_ms = now_ms
        self._noted: RecentlyUsed[K, tuple[int, str]] = RecentlyUsed(
            count_max=count_max, weight_max=count_max
        )

    def reason(self, key: K) -> str | None:
        """Why the key is unknown; None if nothing is known of it."""
        noted = self._noted.get(key)
        if noted is None:
            return None
        until_ms, reason = noted
        if self._now_ms() < until_ms:
            return reason
        self._noted.drop(key)
        return None

    def note(self, key: K, reason: str) -> None:
        self._noted.add(key, (self._now_ms() + self._ms, reason), 1)

    def clear(self) -> None:
        """Something new is there: it may be any of them."""
        self._noted.drop_where(lambda key: True)
