"""Segments made anew of neighbouring segments: merged, and without the messages somebody chose."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.convert_job import Converted
from pydanube.history.removed_messages import Chosen, remove_messages, were_removed
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_file import topic_of, verify_segment
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Corrupt, ErrorCode

ROW_GROUP_BYTES: Final = 8 << 20
"""As the broker's own segments have."""

Choose = Callable[[pa.Table], Chosen]
"""Which rows of a table of SEGMENT_SCHEMA are to be removed."""


@dataclass(slots=True)
class Rewritten:
    files: list[Converted] = field(default_factory=list)
    removed: int = 0
    """Messages that were there before and are not any more."""


def rewrite_segments(
    sources: Sequence[tuple[Path, SegmentDescriptor]],
    spool: Path,
    *,
    created_ms: int,
    segment_bytes: int,
    choose: Choose | None = None,
    why: str = "",
) -> Rewritten:
    """Copy neighbouring segments, oldest first, into new files of about that size; memory is a few row groups.

    Raises:
        Corrupt: a source is damaged, or not what its descriptor says: damage is never copied.
    """
    for path, descriptor in sources:
        _check(path, descriptor)
    last = sources[-1][1]
    topic = str(topic_of(sources[0][0]))
    done = Rewritten()
    with ExitStack() as opened:
        files = [
            opened.enter_context(pq.ParquetFile(path, page_checksum_verification=True)) for path, _ in sources
        ]
        tables = _Tables(files, choose, why, done)
        while tables.has_more:
            writer = opened.enter_context(
                SegmentWriter(
                    spool,
                    topic=topic,
                    topic_id=last.topic_id,
                    epoch=last.epoch,
                    created_ms=created_ms,
                    row_group_bytes=ROW_GROUP_BYTES,
                )
            )
            size = 0
            while tables.has_more and (not size or size + tables.next_bytes <= segment_bytes):
                size += tables.next_bytes
                table = tables.take()
                writer.add(table, removed=int(were_removed(table).sum()))
            done.files.append(writer.finish())
    return done


def _check(path: Path, descriptor: SegmentDescriptor) -> None:
    findings = verify_segment(path)
    problems = list(findings.problems)
    if findings.descriptor is not None and findings.descriptor.checksum != descriptor.checksum:
        problems.append(f"its checksum is {findings.descriptor.checksum}, not {descriptor.checksum}")
    if problems:
        raise Corrupt(
            f"segment {descriptor.segment_id} is damaged and is left as it is: {'; '.join(problems)}",
            ErrorCode.SEGMENT_CORRUPT,
        )


class _Tables:
    """The row groups of all sources, one after the other."""

    def __init__(
        self,
        files: Sequence[pq.ParquetFile],
        choose: Choose | None,
        why: str,
        done: Rewritten,
    ) -> None:
        self._groups = [(file, number) for file in files for number in range(file.metadata.num_row_groups)]
        self._next = 0
        self._choose = choose
        self._why = why
        self._done = done

    @property
    def has_more(self) -> bool:
        return self._next < len(self._groups)

    @property
    def next_bytes(self) -> int:
        """Of the next row group, as it is stored."""
        file, number = self._groups[self._next]
        group = file.metadata.row_group(number)
        return sum(group.column(column).total_compressed_size for column in range(group.num_columns))

    def take(self) -> pa.Table:
        file, number = self._groups[self._next]
        self._next += 1
        table = file.read_row_group(number, use_threads=False).cast(SEGMENT_SCHEMA)
        if self._choose is None:
            return table
        chosen = self._choose(table) & ~were_removed(table)
        self._done.removed += int(chosen.sum())
        return remove_messages(table, chosen, self._why)
