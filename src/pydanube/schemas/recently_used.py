"""A cache that forgets what was not asked for longest, bounded in number and in weight."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class RecentlyUsed(Generic[K, V]):
    """At most `count_max` values of at most `weight_max` together; a heavier one is not kept at all."""

    def __init__(self, *, count_max: int, weight_max: int) -> None:
        self._count_max = count_max
        self._weight_max = weight_max
        self._weight = 0
        self._held: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        found = self._held.get(key)
        if found is None:
            return None
        self._held.move_to_end(key)
        return found[0]

    def add(self, key: K, value: V, weight: int) -> None:
        self.drop(key)
        if weight > self._weight_max:
            return
        self._held[key] = (value, weight)
        self._weight += weight
        while len(self._held) > self._count_max or self._weight > self._weight_max:
            _, (_, forgotten) = self._held.popitem(last=False)
            self._weight -= forgotten

    def drop(self, key: K) -> None:
        found = self._held.pop(key, None)
        if found is not None:
            self._weight -= found[1]

    def drop_where(self, unwanted: Callable[[K], bool]) -> None:
        for key in [key for key in self._held if unwanted(key)]:
            self.drop(key)
