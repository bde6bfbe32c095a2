"""Subscriptions of non-reliable topics: a message goes to somebody now, or is dropped and counted.

There is no window, no ack and no memory of messages. `choose` is called once per message and subscription and
is the hottest code of the broker.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final

from pydanube.dispatch.consumer import NO_LIMIT, Consumer, UnackedLimit
from pydanube.dispatch.key_filter import KeyFilters
from pydanube.dispatch.key_ownership import (
    KEY_LENGTH_REMEMBERED_MAX,
    KEYS_REMEMBERED_MAX,
    OwnedKey,
    least_loaded,
    pull_fair_share,
)
from pydanube.dispatch.rotation import Rotation
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected

NOBODY: Final = 0
"""Returned instead of a consumer id (never 0) when the message is dropped for this subscription."""
IDLE_MAX_MS: Final = 60_000


class LiveSubscription(ABC):
    """Chooses a consumer for each message; remembers since when there was none."""

    def __init__(self) -> None:
        self.delivered = 0
        self.dropped = 0
        """Nobody was connected, or whoever had to take it was full."""
        self.filtered = 0
        """No consumer's key filters accepted it."""
        self._consumers: dict[int, Consumer] = {}
        self._joins = 0
        self._no_limit = UnackedLimit(NO_LIMIT)
        self._attached = 0
        self._idle_since_ms = -1

    def join(self, consumer_id: int, *, filters: Sequence[str] = ()) -> None:
        """Register a consumer; one that is registered already only gets the new filters."""
        consumer = self._consumers.get(consumer_id)
        if consumer is not None:
            consumer.filters = KeyFilters(filters)
            self._refiltered(consumer)
            return
        self._joins += 1
        self._consumers[consumer_id] = Consumer(consumer_id, self._joins, filters, self._no_limit)

    def leave(self, consumer_id: int) -> None:
        """Remove a consumer for good."""
        self._close(consumer_id)
        self._consumers.pop(consumer_id, None)

    def attach(self, consumer_id: int, now_ms: int) -> None:
        """The consumer's stream was opened; nothing is sent before `grant`."""
        consumer = self._consumers.get(consumer_id)
        if consumer is None:
            raise Rejected(
                f"consumer {consumer_id} is not registered on this subscription: subscribe again",
                ErrorCode.CONSUMER_UNKNOWN,
            )
        consumer.credit = 0
        self._idle_since_ms = -1
        if not consumer.attached:
            consumer.attached = True
            self._attached += 1
            self._opened(consumer)

    def detach(self, consumer_id: int, now_ms: int) -> None:
        """The consumer's stream was lost."""
        self._close(consumer_id)

    def grant(self, consumer_id: int, credit: int) -> None:
        """Say how many more messages the consumer's stream takes; replaces what was said before."""
        consumer = self._consumers.get(consumer_id)
        if consumer is not None and consumer.attached:
            consumer.credit = credit

    @abstractmethod
    def choose(self, key: str | bytes, now_ms: int, count: int = 1) -> int:
        """Who gets the next message, or batch of `count`; takes its credits. NOBODY if it is dropped."""

    def is_removable(self, now_ms: int) -> bool:
        """A message found no connected consumer, and for more than a minute since nobody connected."""
        return self._idle_since_ms >= 0 and now_ms - self._idle_since_ms > IDLE_MAX_MS

    def _drop(self, now_ms: int, count: int) -> int:
        self.dropped += count
        if self._attached == 0 and self._idle_since_ms < 0:
            self._idle_since_ms = now_ms
        return NOBODY

    def _close(self, consumer_id: int) -> None:
        consumer = self._consumers.get(consumer_id)
        if consumer is not None and consumer.attached:
            consumer.attached = False
            consumer.credit = 0
            self._attached -= 1
            self._closed(consumer)

    @abstractmethod
    def _opened(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _closed(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _refiltered(self, consumer: Consumer) -> None: ...


class LiveFailoverSubscription(LiveSubscription):
    """Exclusive and Failover: everything goes to the active consumer."""

    def __init__(self, *, exclusive: bool) -> None:
        super().__init__()
        self._exclusive = exclusive
        self._active: Consumer | None = None

    def choose(self, key: str | bytes, now_ms: int, count: int = 1) -> int:
        active = self._active
        if active is not None and active.credit > 0:
            active.credit -= count
            self.delivered += count
            return active.consumer_id
        return self._drop(now_ms, count)

    def join(self, consumer_id: int, *, filters: Sequence[str] = ()) -> None:
        for other in self._consumers:
            if self._exclusive and other != consumer_id:
                raise Conflict(
                    f"the exclusive subscription already has consumer {other}: close it, or subscribe as Failover",
                    ErrorCode.CONSUMER_EXCLUSIVE,
                )
        super().join(consumer_id, filters=filters)

    def _opened(self, consumer: Consumer) -> None:
        if self._active is None:
            self._active = consumer

    def _closed(self, consumer: Consumer) -> None:
        if consumer is self._active:
            self._active = next((c for c in self._consumers.values() if c.attached), None)

    def _refiltered(self, consumer: Consumer) -> None:
        """Keys play no part."""


class LiveSharedSubscription(LiveSubscription):
    """Rotates over the connected consumers, passing over full ones."""

    def __init__(self) -> None:
        super().__init__()
        self._rotation = Rotation()

    def choose(self, key: str | bytes, now_ms: int, count: int = 1) -> int:
        consumer = self._rotation.next_with_credit()
        if consumer is None:
            return self._drop(now_ms, count)
        consumer.credit -= count
        self.delivered += count
        return consumer.consumer_id

    def _opened(self, consumer: Consumer) -> None:
        self._rotation.add(consumer)

    def _closed(self, consumer: Consumer) -> None:
        self._rotation.remove(consumer)

    def _refiltered(self, consumer: Consumer) -> None:
        """Keys play no part."""


class LiveKeySharedSubscription(LiveSubscription):
    """Each key goes to its owner; a key whose owner is not connected gets another one at once."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: dict[str | bytes, OwnedKey] = {}

    def choose(self, key: str | bytes, now_ms: int, count: int = 1) -> int:
        owned = self._keys.get(key)
        owner = owned.owner if owned is not None else None
        if owner is None or not owner.attached:
            owner = self._find_owner(key, owned)
            if owner is None:
                return self._drop(now_ms, count) if self._attached == 0 else self._skip(count)
        if owner.credit <= 0:
            return self._drop(now_ms, count)
        owner.credit -= count
        self.delivered += count
        return owner.consumer_id

    def _find_owner(self, key: str | bytes, owned: OwnedKey | None) -> Consumer | None:
        owner = least_loaded(self._consumers.values(), key)
        if owner is None or not owner.attached:
            return owner
        if owned is None:
            if len(key) > KEY_LENGTH_REMEMBERED_MAX:
                return owner
            if len(self._keys) >= KEYS_REMEMBERED_MAX:
                self._forget_oldest_keys()
            owned = OwnedKey(key)
            self._keys[key] = owned
        owned.give(owner)
        return owner

    def _skip(self, count: int) -> int:
        self.filtered += count
        return NOBODY

    def _opened(self, consumer: Consumer) -> None:
        pull_fair_share(consumer, self._consumers.values(), self._keys.values())

    def _closed(self, consumer: Consumer) -> None:
        """Its keys find another owner when their next message comes."""

    def _refiltered(self, consumer: Consumer) -> None:
        for owned in self._keys.values():
            if owned.owner is consumer and not consumer.filters.accept(owned.key):
                owned.give(None)

    def _forget_oldest_keys(self) -> None:
        """Many at once, so that the cost per new key stays small."""
        for owned in list(self._keys.values())[: KEYS_REMEMBERED_MAX // 4]:
            owned.give(None)
            del self._keys[owned.key]
