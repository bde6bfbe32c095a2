"""A sync in the course of time: backlog without a pause, then a commit in each interval; trouble that passes is waited out."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from pydanube.kernel.errors import Unavailable
from pydanube.spark.failures import SPARK_ERRORS, sentence
from pydanube.spark.lakehouse.sync import Outcome
from pydanube.spark.lakehouse.trouble import passes

logger = logging.getLogger("pydanube.spark.lakehouse")

BACKOFF_SECONDS_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Pace:
    """When to commit and when to tidy up."""

    commit_interval_seconds: float = 60.0
    compact_every: int | None = None
    """Commits."""
    expire_hours: float | None = None
    """Versions of the table that are older are forgotten, each time it is compacted."""
    failures_max: int = 8
    """One after another, before giving up."""


class Sync(Protocol):
    def step(self) -> Outcome: ...

    def tidy(self, expire_hours: float | None = None) -> None: ...


class SyncRun:
    """Steps of a sync, one after another."""

    def __init__(
        self,
        sync: Sync,
        pace: Pace,
        *,
        wait: Callable[[float], bool],
        told: Callable[[Outcome], None] = lambda outcome: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            wait: pauses for so many seconds at most; True ends the run.
            told: hears of each step.
        """
        self._sync = sync
        self._pace = pace
        self._wait = wait
        self._told = told
        self._clock = clock
        self._failures = 0
        self._commits = 0

    def once(self) -> None:
        """Until everything that was there is in the table, or `wait` says so."""
        outcome = self._step()
        while (outcome is None or outcome.has_more) and not self._wait(0.0):
            outcome = self._step()

    def forever(self) -> None:
        """Until `wait` says so."""
        while True:
            began = self._clock()
            outcome = self._step()
            if outcome is None or outcome.has_more:
                pause = 0.0
            else:
                pause = max(0.0, self._pace.commit_interval_seconds - (self._clock() - began))
            if self._wait(pause):
                return

    def _step(self) -> Outcome | None:
        """None if it failed and is worth another try."""
        try:
            outcome = self._sync.step()
        except (Unavailable, *SPARK_ERRORS) as error:
            self._failures += 1
            if not passes(error) or self._failures >= self._pace.failures_max:
                raise
            pause = min(2.0 ** (self._failures - 1), BACKOFF_SECONDS_MAX)
            logger.warning("trying again in %.0f s, failure %d: %s", pause, self._failures, sentence(error))
            self._wait(pause)
            return None
        self._failures = 0
        self._told(outcome)
        if outcome.commit is not None:
            self._commits += 1
            self._tidy()
        return outcome

    def _tidy(self) -> None:
        if self._pace.compact_every is None or self._commits % self._pace.compact_every:
            return
        try:
            self._sync.tidy(self._pace.expire_hours)
        except (Unavailable, *SPARK_ERRORS) as error:
            if not passes(error):
                raise
            # Nothing depends on it, and the next time comes.
            logger.warning("files were not joined: %s", sentence(error))
