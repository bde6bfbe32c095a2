"""Subscriptions that send in log order: due retries first, then what was not sent yet."""

from abc import abstractmethod
from collections.abc import Sequence
from heapq import heappop, heappush

from pydanube.dispatch.actions import Action
from pydanube.dispatch.consumer import Consumer
from pydanube.dispatch.entry import READY, Entry
from pydanube.dispatch.reliable import ReliableSubscription
from pydanube.dispatch.settings import Settings


class LogOrderSubscription(ReliableSubscription):
    """Exclusive, Failover and Shared: one queue for all consumers."""

    def __init__(self, cursor: int, settings: Settings) -> None:
        super().__init__(cursor, settings)
        self._retries: list[int] = []
        """Heap of the offsets that were sent before and are ready again."""
        self._fresh = 0
        """How many were never sent: the last ones of the log, as new messages are sent in log order."""

    @abstractmethod
    def _next_consumer(self) -> Consumer | None:
        """Who gets the next message; None if nobody can take one."""

    def _enqueue(self, entry: Entry, key: str | bytes) -> bool:
        self._fresh += 1
        return True

    def _requeue(self, entry: Entry) -> None:
        heappush(self._retries, entry.offset)

    def _refiltered(self, consumer: Consumer, filters: Sequence[str]) -> None:
        """Keys play no part."""

    def _left_window(self, entry: Entry) -> None:
        """Nothing waits behind it."""

    def _was_blocked(self, entry: Entry) -> None:
        """The count of blocked ones says it all."""

    def _unblocked(self, entry: Entry) -> None:
        """The count of blocked ones says it all."""

    def _dispatch(self, allowance: int, deadline_ms: int, actions: list[Action]) -> int:
        retries = self._retries
        while allowance > 0:
            # A block holds back what was not sent yet; retries of the others go on.
            if not retries and (self._fresh == 0 or self.blocked != 0):
                return allowance
            consumer = self._next_consumer()
            if consumer is None:
                return allowance
            if retries:
                entry = self._entries[heappop(retries)]
            else:
                entry = self._log[len(self._log) - self._fresh]
                self._fresh -= 1
            self._send(entry, consumer, deadline_ms, actions)
            allowance -= 1
        return 0

    def validate(self) -> None:
        super().validate()
        ready = [entry for entry in self._entries.values() if entry.state == READY]
        fresh = self._log[len(self._log) - self._fresh :]
        assert fresh == ready[len(ready) - self._fresh :], "what was never sent is the end of the log"
        assert sorted(self._retries) == [entry.offset for entry in ready[: len(ready) - self._fresh]]
