"""The processes of one stage: started together, stopped together, heard by one parent."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import TracebackType
from typing import Final

from pydanube.bench.worker import Command, Failed, News, Outcome, Progress, Ready, Share, work
from pydanube.kernel.errors import Unavailable

_LOOK_SECONDS: Final = 0.2
_END_SECONDS_MAX: Final = 10.0
_PREPARE_SECONDS_MIN: Final = 60.0
"""Preparing shows no progress: starting Python, connecting and warming up must not look like a stall."""


class Ending(Enum):
    """How a stage came to its end."""

    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    STALLED = "stalled"


class _Stalled(Unavailable):
    """Nothing happened for as long as the user is willing to wait."""


@dataclass
class _Member:
    process: BaseProcess
    pipe: Connection
    ready: bool = False
    messages: int = 0
    outcome: Outcome | None = None


class Crew:
    """One process per share. `with Crew(…) as crew: crew.prepare(); outcome = crew.run(…)`."""

    def __init__(self, shares: Sequence[Share], *, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        # A fresh interpreter each: nothing of the parent's state, threads or locks is inherited.
        context = multiprocessing.get_context("spawn")
        self._members: list[_Member] = []
        with _ctrl_c_blocked():
            for share in shares:
                ours, theirs = context.Pipe()
                process = context.Process(target=work, args=(share, theirs), daemon=True)
                process.start()
                theirs.close()
                self._members.append(_Member(process, ours))

    def __enter__(self) -> "Crew":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            member.pipe.close()
        for member in self._members:
            member.process.join(_END_SECONDS_MAX)
            if member.process.is_alive():
                member.process.kill()
                member.process.join()
            member.process.close()

    def prepare(self) -> None:
        """Wait until all are connected and warmed up."""
        patience = max(self._patience_seconds, _PREPARE_SECONDS_MIN)
        self._hear_until(lambda: all(member.ready for member in self._members), lambda _: None, patience)

    def run(self, show: Callable[[int], None]) -> tuple[Outcome, Ending]:
        """Start all at once and wait for the end; if it comes early, with what was measured so far."""
        self._say(Command.GO)
        ending = Ending.COMPLETE
        try:
            self._hear_until(self._all_done, show, self._patience_seconds)
        except KeyboardInterrupt:
            ending = Ending.INTERRUPTED
        except _Stalled:
            ending = Ending.STALLED
        if ending is not Ending.COMPLETE:
            self._say(Command.STOP)
            self._hear_until(self._all_done, show, self._patience_seconds)
        outcomes = [member.outcome for member in self._members if member.outcome is not None]
        return sum(outcomes[1:], outcomes[0]), ending

    def _all_done(self) -> bool:
        return all(member.outcome is not None for member in self._members)

    def _hear_until(
        self, reached: Callable[[], bool], show: Callable[[int], None], patience_seconds: float
    ) -> None:
        last_progress = -1
        deadline = time.monotonic() + patience_seconds
        while not reached():
            pipes = {member.pipe: member for member in self._members if member.outcome is None}
            for pipe in wait(list(pipes), timeout=_LOOK_SECONDS):
                assert isinstance(pipe, Connection)
                self._take(pipes[pipe])
            messages = sum(member.messages for member in self._members)
            show(messages)
            progress = messages + sum(member.ready for member in self._members)
            if progress != last_progress:
                last_progress = progress
                deadline = time.monotonic() + patience_seconds
            elif time.monotonic() > deadline:
                raise _Stalled(
                    f"the broker gave no sign for {patience_seconds:g} s: look into its log, or wait longer"
                    " by --timeout"
                )

    def _take(self, member: _Member) -> None:
        try:
            news: News = member.pipe.recv()
        except (EOFError, OSError):
            member.process.join(_END_SECONDS_MAX)
            raise Unavailable(
                f"a load process ended with status {member.process.exitcode} before its work was done:"
                " what it printed above says why"
            ) from None
        match news:
            case Ready():
                member.ready = True
            case Progress(messages):
                member.messages = messages
            case Failed(text):
                raise Unavailable(text)
            case Outcome():
                member.outcome = news
                member.messages = news.measured.messages

    def _say(self, command: Command) -> None:
        for member in self._members:
            if member.outcome is None:
                member.pipe.send(command)


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Processes started meanwhile never see Ctrl-C: a process inherits what its parent blocks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
