"""The footer of a segment: where its row groups are and what they hold, checked against the descriptor.

Parquet has no checksum for its footer, and Arrow may end the whole process over a broken one. So no byte of it is
decoded before its checksum was compared: the descriptor knows that of the whole file, the footer that of everything
before it, and a CRC can be continued from there. Then what the footer says is compared with the size of the object,
with the descriptor and with bounds, and only then is memory set aside for a row group. The messages themselves are
protected by page checksums.
"""

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from crc32c import crc32c

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.damage import DamagedSegmentError
from pydanube.history.segment import (
    FORMAT_VERSION,
    KEY_CHECKSUM,
    KEY_END_OFFSET,
    KEY_EPOCH,
    KEY_FORMAT,
    KEY_START_OFFSET,
    KEY_TOPIC,
    KEY_TOPIC_ID,
    SegmentDescriptor,
)
from pydanube.history.segment_rows import RowGroup
from pydanube.history.sparse_file import Bytes, SparseFile
from pydanube.kernel.names import TopicName

TAIL_BYTES: Final = 64 * 1024
"""Read at once from the end: almost every footer is within."""
FOOTER_BYTES_MAX: Final = 64 << 20
GROUP_BYTES_MAX: Final = 512 << 20
"""Largest row group, before and after decompression; writers make them of about 8 MiB of payload."""
GROUP_ROWS_MAX: Final = 1 << 20

_MEMORY_PER_BYTE: Final = 12
"""A decoded footer takes about so much more memory than its bytes: 215 KB for 16 row groups, of 19 KB."""
_MAGIC: Final = b"PAR1"
_MAGIC_BYTES: Final = 4
_TRAILER_BYTES: Final = 8
# A text field of Thrift's compact form: its tag, its length, the text.
_CHECKSUM_BEFORE: Final = re.compile(re.escape(KEY_CHECKSUM.encode()) + rb"\x18\x08([0-9a-f]{8})")
_NAME_COLUMNS: Final = [field.name for field in SEGMENT_SCHEMA if pa.types.is_dictionary(field.type)]
_NEVER_DICTIONARIES: Final = ("payload", "routing_key", "attributes.key_value.value")
"""What a dictionary repeats takes far more memory than a footer can tell, so no writer may use one here."""
_PLAIN_TYPES: Final = {
    field.name: field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    for field in SEGMENT_SCHEMA
}


class GroupFacts(NamedTuple):
    """One row group."""

    number: int
    first_offset: int
    next_offset: int
    start: int
    """Its first byte."""
    end: int
    """The byte behind its last one."""
    raw_bytes: int
    """Its columns, not compressed."""
    min_append_ms: int
    max_append_ms: int

    @property
    def stored_bytes(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"row group {self.number} (bytes {self.start} to {self.end - 1})"


@dataclass(frozen=True, slots=True)
class SegmentFooter:
    metadata: pq.FileMetaData
    groups: tuple[GroupFacts, ...]
    memory_bytes: int

    def group_of(self, offset: int) -> GroupFacts:
        """The row group that holds an offset of the segment."""
        return self.groups[bisect_right(self.groups, offset, key=lambda group: group.first_offset) - 1]


def footer_start(trailer: Bytes, size: int) -> int:
    """Where the footer of a file of that size begins, by its last eight bytes."""
    if bytes(trailer[-_MAGIC_BYTES:]) != _MAGIC:
        raise DamagedSegmentError(f"it does not end at byte {size} as a Parquet file does")
    length = int.from_bytes(trailer[-_TRAILER_BYTES:-_MAGIC_BYTES], "little")
    start = size - _TRAILER_BYTES - length
    if start < _MAGIC_BYTES or not 0 < length <= FOOTER_BYTES_MAX:
        raise DamagedSegmentError(f"it states a footer of {length} bytes")
    return start


def decode_footer(tail: Bytes, topic: TopicName, descriptor: SegmentDescriptor) -> SegmentFooter:
    """Read and check a footer; `tail` is the end of the file, from the start of the footer or before."""
    size = descriptor.size
    start = footer_start(tail, size)
    footer = tail[start - size :]
    _check_checksum(footer, start, descriptor)
    try:
        # A footer alone passes for a file as long as nobody asks for its columns.
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(footer)),
            pre_buffer=False,
            thrift_string_size_limit=FOOTER_BYTES_MAX,
            thrift_container_size_limit=FOOTER_BYTES_MAX,
        )
        metadata = file.metadata
        _check_origin(metadata.metadata or {}, topic, descriptor)
        # Not `metadata.schema`: it and the metadata refer to each other, and would stay until garbage is collected.
        _check_columns(file.schema_arrow)
        groups = _groups(metadata, start, descriptor)
    # Arrow says some damage by exceptions of its own, some by those of the system or of Python.
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DamagedSegmentError):
            raise
        raise DamagedSegmentError(f"its footer (from byte {start}) cannot be read ({error})") from error
    return SegmentFooter(metadata, groups, _MEMORY_PER_BYTE * (size - start))


def decode_group(
    data: Bytes,
    footer: SegmentFooter,
    facts: GroupFacts,
    topic: TopicName,
    descriptor: SegmentDescriptor,
    *,
    for_rows: bool = False,
) -> RowGroup:
    """Decode and check a row group from the bytes it has in the file, and prepare it if it is read as rows."""
    try:
        file = pq.ParquetFile(
            SparseFile(descriptor.size, [(facts.start, data)]),
            metadata=footer.metadata,
            read_dictionary=_NAME_COLUMNS,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        # One thread: a cold reader takes no more of the machine than that from everybody else.
        table = file.read_row_group(facts.number, use_threads=False)
        batches = table.replace_schema_metadata().combine_chunks().to_batches()
        if len(batches) != 1 or batches[0].num_rows != facts.next_offset - facts.first_offset:
            raise DamagedSegmentError(f"{table.num_rows} messages are not as many as its footer says")
        group = RowGroup(batches[0], facts.first_offset, str(topic), for_rows=for_rows)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        if isinstance(error, DamagedSegmentError):
            raise DamagedSegmentError(f"{facts}: {error}") from error
        raise DamagedSegmentError(f"{facts} cannot be decoded ({error})") from error
    if group.append_bounds != (facts.min_append_ms, facts.max_append_ms):
        raise DamagedSegmentError(f"{facts}: its times of append are not those its footer states")
    return group


def _check_checksum(footer: Bytes, start: int, descriptor: SegmentDescriptor) -> None:
    before = _CHECKSUM_BEFORE.search(footer)
    if before is None or f"{crc32c(footer, int(before[1], 16)):08x}" != descriptor.checksum:
        raise DamagedSegmentError(f"its footer (from byte {start}) has a wrong checksum")


def _check_origin(found: dict[bytes, bytes], topic: TopicName, descriptor: SegmentDescriptor) -> None:
    """Refuse a file of another topic, another range or another format."""
    version = found.get(KEY_FORMAT.encode(), b"").decode(errors="replace")
    if version != str(FORMAT_VERSION):
        raise DamagedSegmentError(f"its format version is {version!r}, this release reads {FORMAT_VERSION}")
    for key, expected in (
        (KEY_TOPIC, str(topic)),
        (KEY_TOPIC_ID, str(descriptor.topic_id)),
        (KEY_EPOCH, str(descriptor.epoch)),
        (KEY_START_OFFSET, str(descriptor.start_offset)),
        (KEY_END_OFFSET, str(descriptor.end_offset)),
    ):
        value = found.get(key.encode(), b"").decode(errors="replace")
        if value != expected:
            raise DamagedSegmentError(f"its {key} is {value!r}, not {expected!r}")


def _check_columns(schema: pa.Schema) -> None:
    types = dict(zip(schema.names, map(_plain_type, schema.types), strict=True))
    if types != _PLAIN_TYPES:
        wrong = [name for name, kind in _PLAIN_TYPES.items() if types.get(name) != kind]
        raise DamagedSegmentError(f"its columns {wrong or schema.names} are not those of a segment")


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _groups(metadata: pq.FileMetaData, end: int, descriptor: SegmentDescriptor) -> tuple[GroupFacts, ...]:
    """The row groups, which have to lie one after the other before `end` and to hold the descriptor's offsets."""
    messages = descriptor.next_offset - descriptor.start_offset
    if metadata.num_rows != messages:
        raise DamagedSegmentError(f"it holds {metadata.num_rows} messages, not {messages}")
    groups: list[GroupFacts] = []
    position, offset = _MAGIC_BYTES, descriptor.start_offset
    for number in range(metadata.num_row_groups):
        group = _group(metadata.row_group(number), number, offset)
        if not position <= group.start < group.end <= end:
            raise DamagedSegmentError(f"{group} is not between bytes {position} and {end}")
        if max(group.stored_bytes, group.raw_bytes) > GROUP_BYTES_MAX:
            raise DamagedSegmentError(f"{group} states {group.raw_bytes} bytes: {GROUP_BYTES_MAX} at most")
        if not 0 < group.next_offset - offset <= GROUP_ROWS_MAX:
            raise DamagedSegmentError(f"{group} states {group.next_offset - offset} messages")
        groups.append(group)
        position, offset = group.end, group.next_offset
    if offset != descriptor.next_offset:
        raise DamagedSegmentError(f"its row groups end at offset {offset - 1}")
    _check_times(groups, descriptor)
    return tuple(groups)


def _group(group: pq.RowGroupMetaData, number: int, offset: int) -> GroupFacts:
    columns = [group.column(index) for index in range(group.num_columns)]
    starts = [_first_byte(column) for column in columns]
    ends = [start + column.total_compressed_size for start, column in zip(starts, columns, strict=True)]
    if min(starts) < 0 or any(column.total_uncompressed_size < 0 for column in columns):
        raise DamagedSegmentError(f"row group {number} states a negative size")
    for column in columns:
        if column.has_dictionary_page and column.path_in_schema in _NEVER_DICTIONARIES:
            raise DamagedSegmentError(f"row group {number} has {column.path_in_schema} as a dictionary")
    times = next(column for column in columns if column.path_in_schema == "append_time").statistics
    if times is None or not times.has_min_max:
        raise DamagedSegmentError(f"row group {number} does not state its times of append")
    return GroupFacts(
        number=number,
        first_offset=offset,
        next_offset=offset + group.num_rows,
        start=min(starts),
        end=max(ends),
        raw_bytes=sum([column.total_uncompressed_size for column in columns]),
        min_append_ms=times.min_raw,
        max_append_ms=times.max_raw,
    )


def _first_byte(column: pq.ColumnChunkMetaData) -> int:
    start: int = column.data_page_offset
    return min(start, column.dictionary_page_offset) if column.has_dictionary_page else start


def _check_times(groups: list[GroupFacts], descriptor: SegmentDescriptor) -> None:
    found = min([group.min_append_ms for group in groups]), max([group.max_append_ms for group in groups])
    expected = descriptor.min_append_ms, descriptor.max_append_ms
    if found != expected:
        raise DamagedSegmentError(
            f"its times of append are {found[0]} to {found[1]} ms, not {expected[0]} to {expected[1]}"
        )
