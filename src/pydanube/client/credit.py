"""How much a broker may send ahead of the application. No I/O."""

from typing import Final

from pydanube.kernel.errors import Rejected

PREFETCH_SHARED: Final = 10_000
"""Messages that may wait at a consumer that shares them with others: what lies there, nobody else can work on."""
PREFETCH_ALONE: Final = 50_000
"""Where nobody else wants them. Small messages in smaller numbers are gone before the broker hears that more may come."""


class Credit:
    """Counts what was granted, delivered and taken.

    What is granted and what is held never exceed the bounds, but for the last entry a broker may send in full. A grant is
    renewed when half of it is used, so it costs one small frame per many messages.
    """

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        if messages_max < 1 or bytes_max < 1:
            raise Rejected("prefetch_messages and prefetch_bytes must be 1 or more")
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._held_messages = 0
        self._held_bytes = 0
        self._owed_messages = 0
        self._owed_bytes = 0

    def opened(self) -> tuple[int, int]:
        """The first grant of a channel, in messages and bytes: room for all that is not held from an earlier one."""
        self._owed_messages = self._owed_bytes = 0
        messages = self._messages_max - self._held_messages
        size = self._bytes_max - self._held_bytes
        if messages > 0 and size > 0:
            return messages, size
        # No room at all: a broker needs both, so let it come with what is taken.
        self._owed_messages, self._owed_bytes = messages, size
        return 0, 0

    def delivered(self, messages: int, size: int) -> None:
        self._held_messages += messages
        self._held_bytes += size

    def taken(self, messages: int, size: int) -> tuple[int, int] | None:
        """The application has them. Returns a grant to send, if it is time for one."""
        self._held_messages -= messages
        self._held_bytes -= size
        self._owed_messages += messages
        self._owed_bytes += size
        messages, size = self._owed_messages, self._owed_bytes
        if 2 * messages < self._messages_max and 2 * size < self._bytes_max:
            return None
        if messages <= 0 or size <= 0:
            return None
        self._owed_messages = self._owed_bytes = 0
        return messages, size
