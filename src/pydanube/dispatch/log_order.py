"""Subscriptions that send in log order: what had its turn before and is due, then what was not sent yet."""

from abc import abstractmethod
from collections.abc import Sequence
from heapq import heappop, heappush

from pydanube.dispatch.actions import Action
from pydanube.dispatch.consumer import Consumer
from pydanube.dispatch.entry import DELAYED, READY, Entry
from pydanube.dispatch.reliable import ReliableSubscription
from pydanube.dispatch.settings import Settings


class LogOrderSubscription(ReliableSubscription):
    """Exclusive, Failover and Shared: one queue for all consumers."""

    def __init__(self, cursor: int, settings: Settings) -> None:
        super().__init__(cursor, settings)
        self._retries: list[int] = []
        """Heap of the offsets that are ready, but had their turn before: sent, or passed over as delayed."""

    @abstractmethod
    def _next_consumer(self) -> Consumer | None:
        """Who gets the next message; None if nobody can take one."""

    def _requeue(self, entry: Entry) -> None:
        heappush(self._retries, entry.offset)

    def _fell_due(self, entry: Entry, key: str | bytes) -> None:
        # If its turn is still to come, it is sent then.
        if self._turn == len(self._log) or entry.offset < self._log[self._turn].offset:
            heappush(self._retries, entry.offset)

    def _emptied(self) -> None:
        self._retries.clear()

    def _refiltered(self, consumer: Consumer, filters: Sequence[str]) -> None:
        """Keys play no part."""

    def _left_queue(self, entry: Entry) -> None:
        """There are no queues by key."""

    def _was_blocked(self, entry: Entry) -> None:
        """The count of blocked ones says it all."""

    def _unblocked(self, entry: Entry) -> None:
        """The count of blocked ones says it all."""

    def _dispatch(self, allowance: int, deadline_ms: int, actions: list[Action]) -> int:
        retries = self._retries
        log = self._log
        while allowance > 0:
            if retries:
                entry = self._entries[retries[0]]
            # A block holds back what had no turn yet; the others go on.
            elif self._turn == len(log) or self.blocked != 0:
                return allowance
            else:
                entry = log[self._turn]
            if entry.expires_ms != 0 and (entry.state == DELAYED or entry.expires_ms <= self._now_ms):
                self._take_turn()
                if entry.state != DELAYED:
                    self._expire(entry)
                    log = self._log
                continue
            consumer = self._next_consumer()
            if consumer is None:
                return allowance
            if retries:
                heappop(retries)
            else:
                self._turn += 1
            self._send(entry, consumer, deadline_ms, actions)
            allowance -= entry.count
        return allowance

    def _take_turn(self) -> None:
        if self._retries:
            heappop(self._retries)
        else:
            self._turn += 1

    def validate(self) -> None:
        super().validate()
        had, later = self._log[: self._turn], self._log[self._turn :]
        assert all(entry.state in (READY, DELAYED) and entry.attempts == 0 for entry in later)
        assert sorted(self._retries) == [entry.offset for entry in had if entry.state == READY]
