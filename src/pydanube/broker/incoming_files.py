"""Files that clients send in parts: kept in the spool until they are used, or their sender is gone."""

import asyncio
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import TopicName

FILES_MAX: Final = 100_000
PART_BYTES_MAX: Final = 1 << 20
IDLE_MS_MAX: Final = 60 * 60 * 1000
"""Who has not sent a part for so long was cut off and could not say so."""


@dataclass(slots=True, kw_only=True)
class IncomingFiles:
    """The files of one sender, for one topic."""

    topic: TopicName
    directory: Path
    touched_ms: int
    sizes: dict[int, int] = field(default_factory=dict)
    """Bytes so far, by file number."""

    @property
    def paths(self) -> list[Path]:
        """In the order of their numbers."""
        return [self._path(number) for number in sorted(self.sizes)]

    async def append(self, number: int, position: int, data: bytes) -> None:
        """`position` is how much of that file was sent before."""
        have = self.sizes.get(number, 0)
        if position != have or len(data) > PART_BYTES_MAX or not 0 <= number < FILES_MAX:
            raise Rejected(
                f"part of {len(data)} bytes for file {number} at {position}: {have} bytes of it are here, a part has "
                f"{PART_BYTES_MAX} at most, and there are {FILES_MAX} files at most"
            )
        await asyncio.to_thread(_append, self._path(number), data)
        self.sizes[number] = have + len(data)

    def _path(self, number: int) -> Path:
        return self.directory / f"{number}.parquet"


S = TypeVar("S", bound=IncomingFiles)


class Senders(Generic[S]):
    """Everybody who is sending files for one purpose, by number."""

    def __init__(self, what: str, *, at_once_max: int, clock: Clock) -> None:
        self._what = what
        self._at_once_max = at_once_max
        self._clock = clock
        self._open: dict[int, S] = {}

    async def add(self, number: int, files: S) -> None:
        """Make the directory and take parts from now on."""
        before_ms = self._clock.monotonic_ms() - IDLE_MS_MAX
        for idle in [each for each, sender in self._open.items() if sender.touched_ms < before_ms]:
            await self.remove(idle)
        if len(self._open) >= self._at_once_max:
            raise Rejected(f"{self._at_once_max} {self._what}s are under way: finish or abandon one first")
        self._open[number] = files
        await asyncio.to_thread(files.directory.mkdir, parents=True)

    def get(self, number: int) -> S:
        try:
            files = self._open[number]
        except KeyError:
            raise Rejected(f"no {self._what} {number} is under way: begin it again") from None
        files.touched_ms = self._clock.monotonic_ms()
        return files

    def find(self, number: int) -> S | None:
        return self._open.get(number)

    def items(self) -> list[tuple[int, S]]:
        return list(self._open.items())

    async def remove(self, number: int) -> None:
        """Forget the sender and its files."""
        files = self._open.pop(number, None)
        if files is not None:
            await asyncio.to_thread(shutil.rmtree, files.directory, ignore_errors=True)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
