"""The messages of one routing key in the window, in log order."""

from typing import TYPE_CHECKING

from pydanube.dispatch.entry import BLOCKED, READY
from pydanube.dispatch.key_ownership import OwnedKey

if TYPE_CHECKING:
    from pydanube.dispatch.consumer import Consumer
    from pydanube.dispatch.entry import Entry


class KeyQueue(OwnedKey):
    """Only the head may be sent; those behind it wait until it is settled. That keeps a key in order.

    After a change of owner the head may still be outstanding at the former one.
    """

    __slots__ = ("entries", "held", "recent")

    def __init__(self, key: str | bytes) -> None:
        super().__init__(key)
        # A list: thousands of remembered keys have none, and an empty deque takes ten times the memory.
        self.entries: list[Entry] = []
        self.held = False
        """Cannot progress for now: nobody to send to, or the head is blocked."""
        self.recent = True
        """Used since the last time idle keys were forgotten."""

    def give(self, owner: "Consumer | None") -> None:
        unsent = self.unsent()
        if self.owner is not None:
            self.owner.unsent -= unsent
        super().give(owner)
        if owner is not None:
            owner.unsent += unsent

    def unsent(self) -> int:
        """Only the head can be in another state than ready."""
        count = len(self.entries)
        return count - 1 if count > 0 and self.entries[0].state != READY else count

    def is_stuck(self) -> bool:
        return self.owner is None or (len(self.entries) > 0 and self.entries[0].state == BLOCKED)
