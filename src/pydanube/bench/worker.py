"""A load process: prepares, says so, waits for the start, runs, and hands over what it measured.

The parent says `GO` and `STOP`; a parent that is gone says STOP too. Ctrl-C reaches every process of a
terminal, but only the parent obeys it: these are started with the signal blocked.
"""

import asyncio
import gc
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from multiprocessing.connection import Connection
from typing import Final

import uvloop

from pydanube.bench.consume import ConsumeLoad
from pydanube.bench.fill import FillLoad
from pydanube.bench.latency import LatencyLoad
from pydanube.bench.plan import Group, Plan, Stream
from pydanube.bench.publish import PublishLoad
from pydanube.bench.recorder import Measured, Recorder
from pydanube.bench.sequences import Verdict
from pydanube.kernel.errors import DanubeError

PROGRESS_SECONDS: Final = 0.2


class Command(Enum):
    GO = auto()
    STOP = auto()


class Kind(Enum):
    PUBLISH = "publish"
    FILL = "fill"
    CONSUME = "consume"
    LATENCY = "latency"


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one process does of a stage."""

    kind: Kind
    plan: Plan
    streams: Sequence[Stream] = ()
    groups: Sequence[Group] = ()
    checksums: Mapping[str, int] = field(default_factory=dict)
    connections: int = 1


@dataclass(frozen=True, slots=True)
class Ready:
    """Connected and warmed up."""


@dataclass(frozen=True, slots=True)
class Progress:
    messages: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The load cannot go on."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Everything a share has to say in the end; adds up over processes."""

    measured: Measured = Measured()  # noqa: RUF009 - frozen
    published: Measured | None = None
    verdict: Verdict = Verdict()  # noqa: RUF009 - frozen
    checksums: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Outcome") -> "Outcome":
        return Outcome(
            measured=self.measured + other.measured,
            published=other.published or self.published,
            verdict=self.verdict + other.verdict,
            checksums={**self.checksums, **other.checksums},
        )


News = Ready | Progress | Failed | Outcome


def work(share: Share, pipe: Connection) -> None:
    """The process's whole life."""
    with pipe, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_Work(share, pipe).run())
        except DanubeError as error:
            _tell(pipe, Failed(error.text))
        except OSError as error:
            _tell(pipe, Failed(f"{error}: is the broker running, and does it accept as many connections?"))


class _Work:
    def __init__(self, share: Share, pipe: Connection) -> None:
        self._share = share
        self._pipe = pipe
        self._go = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def run(self) -> None:
        load = _load(self._share)
        preparing = asyncio.current_task()
        assert preparing is not None
        self._running = preparing
        loop = asyncio.get_running_loop()
        loop.add_reader(self._pipe.fileno(), self._obey)
        try:
            async with load:
                _tell(self._pipe, Ready())
                # A full collection of what is loaded by now takes 15 ms, which the broker would be blamed for.
                gc.collect()
                gc.freeze()
                await self._go.wait()
                await self._measure(load)
        except asyncio.CancelledError:
            pass  # stopped before the start: there is nothing to tell
        finally:
            loop.remove_reader(self._pipe.fileno())

    async def _measure(self, load: "Load") -> None:
        recorder = Recorder(time.monotonic_ns())
        reporting = asyncio.create_task(self._report(recorder))
        cpu = time.process_time()
        self._running = asyncio.create_task(load.run(recorder))
        try:
            # Stopped early, what was measured so far still counts.
            with suppress(asyncio.CancelledError):
                await self._running
        except DanubeError as error:
            recorder.fail(error.text)
        finally:
            reporting.cancel()
        measured = recorder.measured(cpu_seconds=time.process_time() - cpu)
        _tell(self._pipe, _outcome(load, measured))

    async def _report(self, recorder: Recorder) -> None:
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            _tell(self._pipe, Progress(recorder.messages))

    def _obey(self) -> None:
        try:
            command = self._pipe.recv()
        except (EOFError, OSError):
            command = Command.STOP
        if command is Command.GO:
            self._go.set()
        elif self._running is not None:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._running.cancel()


Load = PublishLoad | FillLoad | ConsumeLoad | LatencyLoad


def _load(share: Share) -> Load:
    match share.kind:
        case Kind.PUBLISH:
            return PublishLoad(share.plan, share.streams, share.connections)
        case Kind.FILL:
            return FillLoad(share.plan, share.streams, share.groups, share.connections)
        case Kind.CONSUME:
            return ConsumeLoad(share.plan, share.groups, share.checksums, share.connections)
        case Kind.LATENCY:
            return LatencyLoad(share.plan, share.connections)


def _outcome(load: Load, measured: Measured) -> Outcome:
    match load:
        case FillLoad():
            return Outcome(measured=measured, checksums=load.checksums)
        case ConsumeLoad():
            return Outcome(measured=measured, verdict=load.verdict())
        case LatencyLoad():
            return Outcome(measured=measured, verdict=load.verdict(), published=load.published())
        case PublishLoad():
            return Outcome(measured=measured)


def _tell(pipe: Connection, news: News) -> None:
    # A parent that is gone needs no news.
    with suppress(OSError):
        pipe.send(news)
