"""A segment and where it lies, as tasks get to know it; and its bytes on the disk of the task."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pydanube.client.history import StoredSegment
from pydanube.history.segment import SegmentDescriptor
from pydanube.spark.source.segment_files import OutOfReach, is_object, open_segment

if TYPE_CHECKING:
    from pydanube.spark.maintenance.storage_calls import StorageCalls

COPY_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    descriptor: SegmentDescriptor
    place: str
    """A path, or the address of an object."""

    @property
    def stored(self) -> StoredSegment:
        """The same as readers know it."""
        own = self.descriptor
        return StoredSegment(
            own.segment_id,
            own.start_offset,
            own.end_offset,
            own.size,
            own.checksum,
            own.min_append_ms,
            own.max_append_ms,
            own.min_publish_ms,
            own.max_publish_ms,
            own.payload_bytes,
            self.place,
            own.removed_messages,
        )


@contextmanager
def local_file(
    segment: PlacedSegment, topic: str, calls: "StorageCalls", store: Mapping[str, str]
) -> Iterator[Path]:
    """The segment as a file here: where it lies if that is a disk of ours, otherwise a copy for as long as needed.

    Copied from the object store if `store` says how to get in, else through the broker.
    """
    if not is_object(segment.place) and Path(segment.place).is_file():
        yield Path(segment.place)
        return
    with TemporaryDirectory(prefix="danube-segment-") as folder:
        file = Path(folder) / segment.descriptor.segment_id
        if not (is_object(segment.place) and store and _copied(segment, store, file)):
            calls.download(topic, segment.descriptor, file)
        yield file


def _copied(segment: PlacedSegment, store: Mapping[str, str], file: Path) -> bool:
    try:
        with open_segment(segment.stored, store) as source, file.open("xb") as target:
            while data := source.read(COPY_BYTES):
                target.write(data)
    except OutOfReach:
        file.unlink(missing_ok=True)
        return False
    return True
