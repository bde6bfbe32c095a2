"""Turns runs into segments in a process of its own, so that the event loop shares neither interpreter nor core."""

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE, Popen
from typing import IO, Final, NamedTuple

import msgspec

from pydanube.history.convert_job import CheckJob, ConvertAnswer, Converted, ConvertFailure, ConvertJob
from pydanube.history.segment import SegmentDescriptor, unfinished_name
from pydanube.kernel.errors import (
    Conflict,
    Corrupt,
    DanubeError,
    ErrorCode,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)

logger = logging.getLogger("pydanube.history")

WORKER: Final = (sys.executable, "-m", "pydanube.history.convert_worker")
LINE_BYTES_MAX: Final = 1 << 20

_KINDS: Final = {kind.__name__: kind for kind in (Conflict, Corrupt, OutcomeUnknown, Rejected, Unavailable)}
_CODES: Final = {code.number: code for code in ErrorCode}


class Converter:
    """One process, one job at a time. It is started for a job and ended after a while without one."""

    def __init__(
        self,
        *,
        idle_seconds: float = 30.0,
        job_seconds_max: float = 900.0,
        waiting_max: int = 64,
        command: tuple[str, ...] = WORKER,
    ) -> None:
        """`waiting_max` bounds the jobs that wait for the one at work; `command` starts another worker."""
        self._idle_seconds = idle_seconds
        self._job_seconds_max = job_seconds_max
        self._waiting_max = waiting_max
        self._command = command
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._worker: _Worker | None = None
        self._idle: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def process_id(self) -> int | None:
        """Of the worker, while there is one."""
        return None if self._worker is None else self._worker.process_id

    async def convert(self, job: ConvertJob) -> Converted:
        """Make a segment. Cancelling this ends the worker; what it has written so far is removed.

        Raises:
            Corrupt: a run is damaged.
            Unavailable: disk trouble, too many jobs wait, the worker died or took too long, or this was closed.
        """
        answer = await self._in_turn(job)
        assert answer.converted is not None
        return answer.converted

    async def check(self, job: CheckJob) -> tuple[SegmentDescriptor, ...]:
        """See whether files are the history of a topic; return their descriptors.

        Raises:
            Corrupt: a file is damaged, perhaps so that the worker died of it.
            Rejected: the files do not belong together or to that topic.
            Unavailable: as above.
        """
        answer = await self._in_turn(job)
        assert answer.checked is not None
        return answer.checked

    async def _in_turn(self, job: ConvertJob | CheckJob) -> ConvertAnswer:
        if self._waiting >= self._waiting_max:
            raise Unavailable(
                f"{self._waiting} segments wait to be made: {job.topic} has to wait until there are fewer",
                ErrorCode.OVERLOADED,
            )
        self._waiting += 1
        try:
            async with self._turn:
                return await self._do(job)
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End the worker; a job under way fails with Unavailable."""
        self._is_closed = True
        await self._stop_waiting_for_idleness()
        if self._worker is not None:
            await self._worker.kill()
            self._worker = None

    async def _do(self, job: ConvertJob | CheckJob) -> ConvertAnswer:
        if self._is_closed:
            raise _stopping()
        await self._stop_waiting_for_idleness()
        worker = self._worker
        if worker is None or worker.has_ended:
            worker = self._worker = await _Worker.start(self._command)
        try:
            async with asyncio.timeout(self._job_seconds_max):
                answer = await worker.ask(job)
        except BaseException as error:
            # Cancelled, died or too slow: nobody will ever read its answer.
            self._worker = None
            await worker.kill()
            if isinstance(job, ConvertJob):
                _remove_unfinished(job)
            if self._is_closed and isinstance(error, Unavailable):
                raise _stopping() from error
            if isinstance(error, TimeoutError):
                raise Unavailable(
                    f"the converter took more than {self._job_seconds_max:g} s for a segment of {job.topic}: see "
                    "whether the disk answers, it is tried again",
                    ErrorCode.STORAGE_FAILED,
                ) from error
            raise
        self._idle = asyncio.create_task(self._end_when_idle(worker))
        if answer.failure is not None:
            raise _error(answer.failure)
        return answer

    async def _stop_waiting_for_idleness(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            with suppress(asyncio.CancelledError):
                await self._idle
            self._idle = None

    async def _end_when_idle(self, worker: "_Worker") -> None:
        await asyncio.sleep(self._idle_seconds)
        # A job that comes while it ends waits for it, rather than meeting half a worker.
        async with self._turn:
            await worker.end()
            self._worker = None


class _Worker:
    """A running process and the task that passes its complaints on."""

    def __init__(self, process: Popen[bytes], answers: "_Output", complaints: "_Output") -> None:
        self._process = process
        self._outputs = (answers, complaints)
        self._answers = answers.reader
        self._complaints = asyncio.create_task(_log(complaints.reader))

    @classmethod
    async def start(cls, command: tuple[str, ...]) -> "_Worker":
        try:
            # Not by the event loop: it copies the tables of all memory and stands still for 10 to 40 ms, this for 1 to 4.
            process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE)  # noqa: ASYNC220
        except OSError as error:
            raise Unavailable(
                f"the converter cannot be started: {error.strerror or error}: it is tried again",
                ErrorCode.STORAGE_FAILED,
            ) from error
        logger.info("converter started pid=%d", process.pid)
        opening = asyncio.gather(_opened(process.stdout), _opened(process.stderr))
        try:
            return cls(process, *await asyncio.shield(opening))
        except asyncio.CancelledError:
            # It runs already, and nobody else knows of it.
            await cls(process, *await opening).kill()
            raise

    @property
    def process_id(self) -> int:
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    async def ask(self, job: ConvertJob | CheckJob) -> ConvertAnswer:
        line = b""
        # If the worker is gone, what its output has to say of it is enough.
        with suppress(ConnectionError):
            await asyncio.to_thread(self._tell, msgspec.json.encode(job) + b"\n")
            line = await self._answers.readline()
        if not line.endswith(b"\n"):
            code = await asyncio.to_thread(self._process.wait)
            if isinstance(job, CheckJob) and code == -signal.SIGABRT:
                raise Corrupt(
                    f"a file of the import of {job.topic} is damaged so that it cannot be read as Parquet: make it again",
                    ErrorCode.SEGMENT_CORRUPT,
                )
            raise Unavailable(
                f"the converter ended with exit code {code} while working for {job.topic}: it is started again",
                ErrorCode.STORAGE_FAILED,
            )
        return msgspec.json.decode(line, type=ConvertAnswer)

    def _tell(self, line: bytes) -> None:
        """It always reads on, so this takes no longer than writing does."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    async def end(self) -> None:
        """Let it end by itself."""
        await self._reap()

    async def kill(self) -> None:
        self._process.kill()
        await self._reap()

    async def _reap(self) -> None:
        assert self._process.stdin is not None
        # Closing writes what a broken pipe has left behind.
        with suppress(OSError):
            self._process.stdin.close()
        code = await asyncio.to_thread(self._process.wait)
        await self._complaints
        for output in self._outputs:
            output.pipe.close()
        logger.info("converter ended pid=%d exit_code=%d", self._process.pid, code)


class _Output(NamedTuple):
    """What a process writes."""

    reader: asyncio.StreamReader
    pipe: asyncio.ReadTransport


async def _opened(file: IO[bytes] | None) -> _Output:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    loop = asyncio.get_running_loop()
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return _Output(reader, pipe)


async def _log(complaints: asyncio.StreamReader) -> None:
    while line := await complaints.readline():
        logger.warning("converter says: %s", line.decode(errors="replace").rstrip())


def _remove_unfinished(job: ConvertJob) -> None:
    first = job.runs[0].descriptor
    name = unfinished_name(first.topic_id, first.start_offset, job.created_ms)
    with suppress(OSError):
        (Path(job.spool) / name).unlink()


def _stopping() -> Unavailable:
    return Unavailable("the broker is stopping: the segment is made after the next start")


def _error(failure: ConvertFailure) -> DanubeError:
    return _KINDS.get(failure.kind, DanubeError)(failure.text, _CODES.get(failure.code))
