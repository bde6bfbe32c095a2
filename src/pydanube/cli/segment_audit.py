"""What `danube segments verify` does: every file against itself, its descriptor and its neighbours."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from pydanube.cli.isolation import Isolation
from pydanube.cli.segment_sources import Piece, SegmentGone, Source
from pydanube.history.export import file_checksum
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_file import verify_segment
from pydanube.kernel.errors import Corrupt

_NOT_OF_THE_FILE: Final = frozenset({"segment_id", "created_at", "etag"})
"""Given by the store, and by the broker that took an import: no byte of the file need say the same."""


@dataclass(frozen=True, slots=True)
class Damage:
    place: str
    what: str


@dataclass(slots=True)
class Audit:
    segments: int = 0
    messages: int = 0
    """Read and found good."""
    size: int = 0
    deleted_meanwhile: int = 0
    """Segments that retention took before they were read."""
    damages: list[Damage] = field(default_factory=list)

    def document(self) -> dict[str, object]:
        document: dict[str, object] = msgspec.to_builtins(self)
        return document


async def audit(source: Source, done: Callable[[int], None]) -> Audit:
    """Verify all segments of a source; damage is collected, so that all of it is known after one run."""
    async with Isolation() as isolation:
        return await _audit(source, isolation, done)


async def _audit(source: Source, isolation: Isolation, done: Callable[[int], None]) -> Audit:
    found = Audit()
    previous: SegmentDescriptor | None = None
    for piece in source.pieces:
        try:
            descriptor, messages, problems = await _examine(source, isolation, piece, done)
        except SegmentGone:
            found.deleted_meanwhile += 1
            previous = piece.expected
            continue
        found.segments += 1
        found.size += piece.size
        found.messages += messages
        found.damages += [Damage(piece.place, what) for what in problems]
        if piece.expected is not None:
            # What the broker remembers counts for the order: a file that cannot be read hides no gap.
            descriptor = piece.expected
        if descriptor is not None and previous is not None:
            found.damages += [Damage(piece.place, what) for what in _breaks(previous, descriptor)]
        previous = descriptor
    return found


async def _examine(
    source: Source, isolation: Isolation, piece: Piece, done: Callable[[int], None]
) -> tuple[SegmentDescriptor | None, int, list[str]]:
    """What one segment says of itself, its good messages, and what is wrong with it."""
    try:
        async with source.file(piece, done) as file:
            is_as_written = (
                piece.expected is not None
                and await asyncio.to_thread(file_checksum, file) == piece.expected.checksum
            )
            if is_as_written:
                findings = await asyncio.to_thread(verify_segment, file)
            else:
                findings = await isolation.run(verify_segment, file)
    except Corrupt as error:
        return None, 0, [error.text]
    except (ArithmeticError, LookupError, ValueError) as error:
        # What Arrow and numpy say of numbers in a footer that cannot be.
        return None, 0, [f"it cannot be decoded ({error}): restore it from a copy"]
    problems = list(findings.problems)
    if findings.descriptor is not None and piece.expected is not None:
        problems += _differences(findings.descriptor, piece.expected)
    return findings.descriptor, findings.messages, problems


def _differences(found: SegmentDescriptor, expected: SegmentDescriptor) -> Iterator[str]:
    for name in SegmentDescriptor.__struct_fields__:
        if name not in _NOT_OF_THE_FILE and getattr(found, name) != getattr(expected, name):
            yield f"{name} is {getattr(found, name)}, the broker remembers {getattr(expected, name)}"


def _breaks(previous: SegmentDescriptor, segment: SegmentDescriptor) -> Iterator[str]:
    if segment.topic_id != previous.topic_id:
        yield f"it belongs to another topic than {previous.segment_id}: verify each topic's folder by itself"
    elif segment.start_offset > previous.next_offset:
        missing = f"{previous.next_offset} to {segment.start_offset - 1}"
        yield f"offsets {missing} are missing before it: restore their segment from a copy"
    elif segment.start_offset < previous.next_offset:
        yield f"it begins at offset {segment.start_offset}, which {previous.segment_id} holds already"
