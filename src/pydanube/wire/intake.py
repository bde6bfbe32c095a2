"""Whether a connection is read from. It is not while there is any reason against it: then TCP slows its client down."""

import asyncio
from typing import Final

PUBLISHES: Final = 1
"""Its publish window is full."""
ANSWERS: Final = 2
"""It does not read its answers."""
JOURNAL: Final = 4
"""Everybody publishes faster than segments can be written."""
QUOTA: Final = 8
"""Its principal publishes more than it may."""


class Intake:
    """The reading side of one transport."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reasons = 0

    @property
    def is_stopped(self) -> bool:
        return self._reasons != 0

    @property
    def waits_for_the_broker(self) -> bool:
        """Whether the silence of the client is the broker's own doing."""
        return self._reasons & (PUBLISHES | JOURNAL | QUOTA) != 0

    def open(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def close(self) -> None:
        """Read again, whatever comes: the connection is ending and nothing of it counts."""
        if self._reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        self._transport = None

    def stop(self, reason: int) -> None:
        if not self._reasons and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()
        self._reasons |= reason

    def go_on(self, reason: int) -> bool:
        """Take back a reason; whether it was the last one."""
        if not self._reasons & reason:
            return False
        self._reasons &= ~reason
        if self._reasons:
            return False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
        return True
