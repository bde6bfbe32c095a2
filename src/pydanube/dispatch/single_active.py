"""Exclusive and Failover: one consumer receives everything, in log order."""

from collections.abc import Sequence

from pydanube.dispatch.consumer import Consumer
from pydanube.dispatch.entry import AWAITING_ACK, WAITING
from pydanube.dispatch.log_order import LogOrderSubscription
from pydanube.kernel.errors import Conflict, ErrorCode


class FailoverSubscription(LogOrderSubscription):
    """The earliest-joined connected consumer is active until its stream ends; the others stand by."""

    _active: Consumer | None = None

    @property
    def active_consumer_id(self) -> int | None:
        return None if self._active is None else self._active.consumer_id

    def _next_consumer(self) -> Consumer | None:
        active = self._active
        return active if active is not None and active.credit > 0 and active.limit.left > 0 else None

    def _joined(self, consumer: Consumer) -> None:
        """Nothing changes before it has a stream."""

    def _opened(self, consumer: Consumer) -> None:
        # Nobody is displaced: one that returns waits behind whoever is active now.
        if self._active is None:
            self._active = consumer

    def _lost(self, consumer: Consumer) -> None:
        if consumer is self._active:
            self._restart_unacked(consumer)
            self._active = next((c for c in self._consumers.values() if c.attached), None)

    def _left(self, consumer: Consumer) -> None:
        self._lost(consumer)

    def _taken_over(self, consumer: Consumer) -> None:
        if consumer is self._active:
            self._restart_unacked(consumer)

    def _restart_unacked(self, consumer: Consumer) -> None:
        """Everything unacked is due now, in offset order, also what still serves a retry delay.

        What was never sent keeps its delivery time.
        """
        self._take_back(consumer)
        for entry in self._entries.values():
            if entry.state == WAITING:
                self._make_ready(entry)
            assert entry.state != AWAITING_ACK, "a standby cannot hold an unacked message"


class ExclusiveSubscription(FailoverSubscription):
    """Failover without a standby."""

    def join(self, consumer_id: int, *, filters: Sequence[str] = ()) -> None:
        for other in self._consumers:
            if other != consumer_id:
                raise Conflict(
                    f"the exclusive subscription already has consumer {other}: close it, or subscribe as Failover",
                    ErrorCode.CONSUMER_EXCLUSIVE,
                )
        super().join(consumer_id, filters=filters)
