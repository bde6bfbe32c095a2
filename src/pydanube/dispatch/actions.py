"""What a reliable subscription asks its driver to do, in the order to do it."""

from typing import Final, TypeAlias


class Deliver:
    """Send a message to a consumer's stream; `attempt` is 1 the first time."""

    __slots__ = ("attempt", "consumer_id", "message", "offset")

    def __init__(self, consumer_id: int, offset: int, message: bytes, attempt: int) -> None:
        self.consumer_id: Final = consumer_id
        self.offset: Final = offset
        self.message: Final = message
        self.attempt: Final = attempt


class DeadLetter:
    """Publish a copy of a message that failed too often, then report `dead_lettered(offset, ok)`."""

    __slots__ = ("attempts", "message", "offset", "reason", "topic")

    def __init__(self, offset: int, message: bytes, attempts: int, reason: str | None, topic: str) -> None:
        self.offset: Final = offset
        self.message: Final = message
        self.attempts: Final = attempts
        self.reason: Final = reason
        self.topic: Final = topic


Action: TypeAlias = Deliver | DeadLetter
