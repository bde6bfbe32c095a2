"""What a reliable subscription asks its driver to do, in the order to do it."""

from typing import Final, TypeAlias


class Deliver:
    """Send `offset` and the `count - 1` messages behind it to a consumer's stream; `attempt` is 1 the first time.

    `base` is the offset of the first message in `message`: it lies before `offset` where only a part is due.
    """

    __slots__ = ("append_ms", "attempt", "base", "consumer_id", "count", "message", "offset")

    def __init__(  # noqa: PLR0917 - one per delivery: by position is fastest
        self,
        consumer_id: int,
        offset: int,
        message: bytes,
        attempt: int,
        count: int,
        base: int,
        append_ms: int,
    ) -> None:
        self.consumer_id: Final = consumer_id
        self.offset: Final = offset
        self.message: Final = message
        self.attempt: Final = attempt
        self.count: Final = count
        self.base: Final = base
        self.append_ms: Final = append_ms


class DeadLetter:
    """Publish a copy of what failed too often, then report `dead_lettered(offset, ok)`.

    That is `offset` and the `count - 1` messages behind it; `base` is the first one in `message`.
    """

    __slots__ = ("attempts", "base", "count", "message", "offset", "reason", "topic")

    def __init__(  # noqa: PLR0917
        self,
        offset: int,
        message: bytes,
        attempts: int,
        reason: str | None,
        topic: str,
        count: int,
        base: int,
    ) -> None:
        self.offset: Final = offset
        self.message: Final = message
        self.attempts: Final = attempts
        self.reason: Final = reason
        self.topic: Final = topic
        self.count: Final = count
        self.base: Final = base


Action: TypeAlias = Deliver | DeadLetter
