"""What the converter is asked and what it answers: plain data, for it works in a process of its own."""

import msgspec

from pydanube.entries.run_file import RunDescriptor
from pydanube.history.segment import SegmentDescriptor


class RunSource(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    descriptor: RunDescriptor


class ConvertJob(msgspec.Struct, frozen=True, kw_only=True, tag="convert"):
    """Make one segment of contiguous runs of one topic."""

    topic: str
    runs: tuple[RunSource, ...]
    """Oldest first, without a gap."""
    spool: str
    """Directory for the finished file, on the disk the runs are on; it exists."""
    created_ms: int
    row_group_bytes: int = 8 << 20
    """Payload bytes of a row group, about: what a reader far behind has in memory."""
    is_hurried: bool = False
    """Whether to take cores from publishers, who would have to be refused soon."""


class CheckJob(msgspec.Struct, frozen=True, kw_only=True, tag="check"):
    """See whether files made elsewhere are the history of a topic; they may be anything."""

    topic: str
    topic_id: int
    files: tuple[str, ...]
    """In the order of their offsets."""
    created_ms: int


class Converted(msgspec.Struct, frozen=True, kw_only=True):
    """A finished file in the spool directory, whole and synced, under the name its descriptor has."""

    path: str
    descriptor: SegmentDescriptor


class ConvertFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why there is no segment: an error of kernel.errors on its way between processes."""

    kind: str
    """Name of the error's class."""
    code: int
    text: str


class ConvertAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    converted: Converted | None = None
    checked: tuple[SegmentDescriptor, ...] | None = None
    failure: ConvertFailure | None = None
