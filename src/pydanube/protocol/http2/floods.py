"""Counts frames that cost the sender nothing and us something."""

from typing import Final

from pydanube.protocol.http2.frames import ENHANCE_YOUR_CALM, GoAwayError
from pydanube.protocol.http2.limits import Http2Limits

RESETS: Final = 0
SETTINGS_CHANGES: Final = 1
PINGS: Final = 2
EMPTY_FRAMES: Final = 3
PRIORITIES: Final = 4
WINDOW_UPDATES: Final = 5

_NAMES: Final = ("stream resets", "SETTINGS", "PING", "empty DATA", "PRIORITY", "WINDOW_UPDATE")


class FloodGate:
    """Lets a bounded number of each kind through per interval."""

    def __init__(self, limits: Http2Limits) -> None:
        self._interval_seconds = limits.flood_interval_seconds
        self._limits = [
            limits.resets_max,
            limits.settings_max,
            limits.pings_max,
            limits.empty_frames_max,
            limits.priorities_max,
            limits.window_updates_max,
        ]
        self._counts = [0] * len(_NAMES)
        self._interval_started_at = 0.0

    def count(self, kind: int, now: float) -> None:
        """Count one; raise GoAwayError past the limit."""
        if now - self._interval_started_at >= self._interval_seconds:
            self._interval_started_at = now
            self._counts = [0] * len(_NAMES)
        self._counts[kind] += 1
        if self._counts[kind] > self._limits[kind]:
            raise GoAwayError(
                ENHANCE_YOUR_CALM,
                f"more than {self._limits[kind]} {_NAMES[kind]} frames in {self._interval_seconds} s",
            )

    def forgive(self, kind: int, number: int) -> None:
        """Take back what the peer had good reason to send."""
        self._counts[kind] = max(0, self._counts[kind] - number)
