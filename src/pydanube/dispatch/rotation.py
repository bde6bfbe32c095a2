"""Turns over the connected consumers."""

from pydanube.dispatch.consumer import Consumer


class Rotation:
    """In join order. Whoever comes or goes, the one whose turn it is stays next."""

    __slots__ = ("_consumers", "_turn")

    def __init__(self) -> None:
        self._consumers: list[Consumer] = []
        self._turn = 0

    def add(self, consumer: Consumer) -> None:
        place = 0
        while place < len(self._consumers) and self._consumers[place].joined < consumer.joined:
            place += 1
        self._consumers.insert(place, consumer)
        if place <= self._turn and len(self._consumers) > 1:
            self._turn += 1

    def remove(self, consumer: Consumer) -> None:
        for place, other in enumerate(self._consumers):
            if other is consumer:
                del self._consumers[place]
                if place < self._turn:
                    self._turn -= 1
                if self._turn == len(self._consumers):
                    self._turn = 0
                return

    def next_with_credit(self) -> Consumer | None:
        """Give the turn to the next consumer that can take a message; None if nobody can."""
        consumers = self._consumers
        first = self._turn
        turn = first
        if not consumers:
            return None
        while True:
            consumer = consumers[turn]
            turn += 1
            if turn == len(consumers):
                turn = 0
            if consumer.credit > 0 and consumer.limit.left > 0:
                self._turn = turn
                return consumer
            if turn == first:
                return None
