"""Shared: messages rotate over the connected consumers, in join order."""

from pydanube.dispatch.consumer import Consumer
from pydanube.dispatch.log_order import LogOrderSubscription
from pydanube.dispatch.rotation import Rotation
from pydanube.dispatch.settings import Settings


class SharedSubscription(LogOrderSubscription):
    """Each message goes to the next consumer in turn that can take it; so do retries."""

    def __init__(self, cursor: int, settings: Settings) -> None:
        super().__init__(cursor, settings)
        self._rotation = Rotation()

    def _next_consumer(self) -> Consumer | None:
        return self._rotation.next_with_credit()

    def _joined(self, consumer: Consumer) -> None:
        """It takes part once it has a stream."""

    def _opened(self, consumer: Consumer) -> None:
        self._rotation.add(consumer)

    def _lost(self, consumer: Consumer) -> None:
        self._rotation.remove(consumer)
        self._take_back(consumer)

    def _left(self, consumer: Consumer) -> None:
        self._lost(consumer)

    def _taken_over(self, consumer: Consumer) -> None:
        self._take_back(consumer)
