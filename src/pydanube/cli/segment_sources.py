"""Where `danube segments` takes segment files from: a broker, one download at a time, or a folder."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from pydanube.cli.storage_admin import StorageAdmin
from pydanube.history.listed_segment import descriptor_of
from pydanube.history.segment import SegmentDescriptor
from pydanube.kernel.errors import DanubeError, Rejected


@dataclass(frozen=True, slots=True)
class Piece:
    """One segment of a source."""

    name: str
    place: str
    """Where an operator finds it."""
    size: int
    expected: SegmentDescriptor | None
    """What the broker remembers of it; None for a file in a folder, which has only itself to speak for it."""


class SegmentGone(Rejected):
    """Retention, or whoever deleted the topic, was faster: there is nothing to look at any more."""


class Source(Protocol):
    pieces: list[Piece]
    """Oldest first."""
    unsealed: range
    """Offsets that are in no segment yet."""

    def file(self, piece: Piece, done: Callable[[int], None]) -> AbstractAsyncContextManager[Path]:
        """The piece as a local file, for as long as the context lasts; `done` is told the bytes of each step.

        Raises:
            SegmentGone: the source had it when it was opened, but has it no more.
        """
        ...


class TopicSource:
    """The segments of a topic, from the durable store through its broker."""

    def __init__(self, admin: StorageAdmin, topic: str, pieces: list[Piece], unsealed: range) -> None:
        self.pieces = pieces
        self.unsealed = unsealed
        self._admin = admin
        self._topic = topic

    @classmethod
    async def open(cls, admin: StorageAdmin, topic: str, from_offset: int = 0) -> "TopicSource":
        """The segments that hold this offset or later ones, as they are now."""
        listed = await admin.segments(topic, from_offset)
        pieces = [Piece(each.segment_id, each.place, each.size, descriptor_of(each)) for each in listed]
        facts = await admin.describe(topic)
        sealed_end = listed[-1].end_offset + 1 if listed else facts.sealed_end
        return cls(admin, topic, pieces, range(sealed_end, facts.next_offset))

    @asynccontextmanager
    async def file(self, piece: Piece, done: Callable[[int], None]) -> AsyncIterator[Path]:
        with TemporaryDirectory(prefix="danube-segment-") as folder:
            # Its name comes from elsewhere: it must not lead out of the folder.
            file = Path(folder) / Path(piece.name).name
            try:
                await self._admin.download(self._topic, piece.name, piece.size, file, done)
            except DanubeError as error:
                if await self._is_gone(piece):
                    raise SegmentGone(f"{piece.place} was deleted meanwhile") from error
                raise
            yield file

    async def _is_gone(self, piece: Piece) -> bool:
        assert piece.expected is not None, "a broker describes its segments"
        listed = await self._admin.segments(self._topic, piece.expected.start_offset)
        return piece.name not in {each.segment_id for each in listed}


class FolderSource:
    """Segment files in a folder. Their names begin with their offsets, so the order of names is theirs."""

    unsealed = range(0)

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.pieces = [
            Piece(file.name, str(file), file.stat().st_size, None)
            for file in sorted(folder.glob("*.parquet"))
        ]
        if not self.pieces:
            raise Rejected(
                f"{folder} holds no *.parquet file: a topic's segments lie in its folder storage/topics/NAMESPACE/"
                "TOPIC/segments below the durable root"
            )

    @asynccontextmanager
    async def file(self, piece: Piece, done: Callable[[int], None]) -> AsyncIterator[Path]:
        yield self._folder / piece.name
        done(piece.size)
