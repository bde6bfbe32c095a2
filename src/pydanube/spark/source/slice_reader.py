"""A task's work: the messages of one slice, from the segment itself or through a broker."""

import logging
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.spark.source.filters import Narrowing
from pydanube.spark.source.options import ReadOptions
from pydanube.spark.source.rows import BATCH_ROWS, RowMaker, joined
from pydanube.spark.source.segment_files import OutOfReach, is_object, open_segment
from pydanube.spark.source.slices import SegmentFile, Slice

logger = logging.getLogger("pydanube.spark")


class SliceReader:
    """Travels to the executors."""

    def __init__(self, options: ReadOptions, columns: Sequence[str], narrowing: Narrowing) -> None:
        self._options = options
        self._columns = tuple(columns)
        self._narrowing = narrowing

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """Record batches in the order of offsets."""
        start = piece.start
        if piece.segment is not None and is_direct(piece.segment, self._options):
            try:
                for batch, end in self._from_segment(piece, piece.segment):
                    yield batch
                    start = end
                return
            except OutOfReach as error:
                if self._options.read_from == "store":
                    raise Unavailable(
                        f"offsets {start} to {piece.end - 1} of {piece.part.name} cannot be read from the store: "
                        f"{error}; readFrom=auto reads them through the broker",
                        ErrorCode.STORAGE_FAILED,
                    ) from error
                logger.warning("segment out of reach, the broker is asked for its messages: %s", error)
        yield from joined(self._from_broker(piece, start))

    def _from_segment(self, piece: Slice, segment: SegmentFile) -> Iterator[tuple[pa.RecordBatch, int]]:
        """Each batch with the offset behind it."""
        make = RowMaker(piece.part, self._columns, may_have_removed=segment.may_have_removed)
        with open_segment(segment, self._options.store) as file:
            try:
                parquet = pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True)
                _check_messages(parquet, segment)
                for number, group in row_groups(parquet.metadata, segment.start_offset):
                    wanted = range(max(group.start, piece.start), min(group.stop, piece.end))
                    if not wanted or not keeps_group(self._narrowing, parquet.metadata, number):
                        continue
                    offset = group.start
                    for batch in parquet.iter_batches(
                        BATCH_ROWS, [number], make.stored_columns, use_threads=False
                    ):
                        first = max(wanted.start - offset, 0)
                        part = batch.slice(first, max(min(wanted.stop - offset, len(batch)) - first, 0))
                        offset += len(batch)
                        if len(part):
                            yield make.rows(part), min(offset, wanted.stop)
            except (pa.ArrowException, OSError) as error:
                raise Corrupt(
                    f"segment {segment.place} of {piece.part.name} cannot be read: {error}; "
                    "`danube segments verify` tells what is damaged",
                    ErrorCode.SEGMENT_CORRUPT,
                ) from error

    def _from_broker(self, piece: Slice, start: int) -> Iterator[pa.RecordBatch]:
        # A task that finds its file needs no client, and starts a third sooner without.
        from pydanube.spark.source.broker_messages import delivered  # noqa: PLC0415

        make = RowMaker(piece.part, self._columns)
        wanted, fail = range(start, piece.end), self._options.fail_on_data_loss
        for batch in delivered(self._options.connection, piece.part, wanted, fail_on_data_loss=fail):
            yield make.rows(batch)


def is_direct(segment: SegmentFile, options: ReadOptions) -> bool:
    """Whether to try the file itself: objects only with something to get in by, or if asked to."""
    if options.read_from == "broker":
        return False
    return not is_object(segment.place) or bool(options.store) or options.read_from == "store"


def row_groups(metadata: pq.FileMetaData, start_offset: int) -> Iterator[tuple[int, range]]:
    """The number and the offsets of each."""
    offset = start_offset
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        yield number, range(offset, offset + rows)
        offset += rows


def keeps_group(narrowing: Narrowing, metadata: pq.FileMetaData, number: int) -> bool:
    """Whether some messages of a row group may be wanted, by their times."""
    if not narrowing.numbers:
        return True
    group = metadata.row_group(number)
    for at in range(group.num_columns):
        column = group.column(at)
        interval = narrowing.numbers.get(column.path_in_schema)
        if interval is None or column.path_in_schema not in ("append_time", "publish_time"):
            continue
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        # As stored, in milliseconds: not every publish time is one that Python can express.
        if not interval.meets(statistics.min_raw * 1000, statistics.max_raw * 1000):
            return False
    return True


def _check_messages(parquet: pq.ParquetFile, segment: SegmentFile) -> None:
    if parquet.metadata.num_rows != segment.messages:
        raise Corrupt(
            f"segment {segment.place} has {parquet.metadata.num_rows} messages, {segment.messages} are known of: "
            "it was replaced by something else; restore it from a copy",
            ErrorCode.SEGMENT_CORRUPT,
        )
