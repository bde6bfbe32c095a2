"""What is to be done at the end of this loop tick: each subscription with news once, whatever came in."""

import asyncio
from typing import Protocol

import structlog

log = structlog.get_logger("pydanube.broker")


class Work(Protocol):
    is_listed: bool
    """Set while on the agenda; owned by the agenda."""

    def run(self) -> None: ...


class Agenda:
    """Collects work during a tick and runs it once.

    Front doors run it before they write, so that what a request sets in motion leaves in the same
    write as its answer; otherwise the loop runs it by itself.
    """

    def __init__(self) -> None:
        self.runs = 0
        self._listed: list[Work] = []
        self._scheduled = False

    def add(self, work: Work) -> None:
        if work.is_listed:
            return
        work.is_listed = True
        self._listed.append(work)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._run_scheduled)

    def run(self) -> None:
        """Run all that is listed; what the runs list in turn waits for the next tick."""
        if not self._listed:
            return
        listed, self._listed = self._listed, []
        self.runs += len(listed)
        for work in listed:
            work.is_listed = False
            try:
                work.run()
            except Exception:
                # A bug in one subscription must neither stop the others nor cost a client its connection.
                log.exception("a subscription failed")

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()
