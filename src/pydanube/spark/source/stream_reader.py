"""Reading topics as a stream: which offsets each micro-batch has."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from pydanube.client import blocking
from pydanube.client.position import Position
from pydanube.kernel.errors import Rejected
from pydanube.spark.source.data_loss import check_loss, topic_lost
from pydanube.spark.source.filters import Narrowing
from pydanube.spark.source.limits import Stretch, share_bytes, share_messages
from pydanube.spark.source.options import ReadOptions
from pydanube.spark.source.patience import patiently
from pydanube.spark.source.planning import Planner, available, fix_position, parts_of
from pydanube.spark.source.slice_reader import SliceReader
from pydanube.spark.source.slices import Slice, cover
from pydanube.spark.topics import TopicPart

Offsets = dict[str, int]
"""The next offset to read, by the names of parts: what a checkpoint holds."""

T = TypeVar("T")

SAMPLE_MESSAGES: Final = 64
"""Of what is in no segment, to tell how large messages are."""


class StreamReader(DataSourceStreamReader):
    """One lives as long as a run of the query, and plans; copies of it read.

    Spark 4.1 asks for the latest offset without saying where it stands, so limits are counted from the last answer.
    After a restart it plans an empty batch first, which tells where the run before had come to.
    """

    def __init__(self, options: ReadOptions, columns: Sequence[str]) -> None:
        self._options = options
        self._columns = columns
        self._initial: Offsets | None = None
        self._position: Offsets | None = None
        """Where the next batch begins."""
        self._end: Offsets | None = None
        """If the stream has one: fixed when it begins, so that it comes to an end."""

    def initialOffset(self) -> Offsets:  # noqa: N802
        # Spark asks for the latest offset first, and for this one afterwards.
        if self._initial is None:
            start, what = self._options.start, "startingOffsets"
            self._initial = self._ask(lambda client: fix_position(client, self._options, start, what=what))
        return self._initial

    def latestOffset(self) -> Offsets:  # noqa: N802
        position = self.initialOffset() if self._position is None else self._position
        self._position = self._ask(lambda client: self._latest(client, position))
        return self._position

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        self._position = dict(end)
        if start == end:
            return []
        return list(self._ask(lambda client: self._slices(client, start, end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Slice):
            yield from SliceReader(self._options, self._columns, Narrowing()).read(partition)

    def commit(self, end: Offsets) -> None:
        """Nothing is held for a stream: how long messages are kept is for the topic to say."""

    # ── how far the next batch goes ─────────────────────────────────────────────────────────────

    def _latest(self, client: blocking.Client, position: Offsets) -> Offsets:
        options = self._options
        if (options.is_bounded or options.available_now) and self._end is None:
            self._end = fix_position(client, options, options.end, what="endingOffsets")
        parts = parts_of(client, options)
        there = available(client, parts)
        self._check_topics(parts, there, position)
        waiting: dict[str, range] = {}
        for part in parts:
            kept = there[part.name]
            start, stop = position.get(part.name, 0), kept.stop
            if self._end is not None:
                stop = min(stop, self._end.get(part.name, 0))
            # Behind the end: the topic was made anew, and is read from its beginning.
            start = start if start <= kept.stop else kept.start
            waiting[part.name] = range(start, max(start, stop))
        return {name: waiting[name].start + taken for name, taken in self._share(client, waiting).items()}

    def _check_topics(
        self, parts: Sequence[TopicPart], there: Mapping[str, range], position: Offsets
    ) -> None:
        fail = self._options.fail_on_data_loss
        known = {part.name for part in parts}
        for name, offset in position.items():
            part = TopicPart.of_name(name)
            if name not in known:
                topic_lost(part, offset, fail=fail, why="was deleted")
            elif there[name].stop < offset:
                topic_lost(
                    part, offset, fail=fail, why=f"was made anew and ends before offset {there[name].stop}"
                )

    def _share(self, client: blocking.Client, waiting: Mapping[str, range]) -> dict[str, int]:
        options = self._options
        counts = {name: len(one) for name, one in waiting.items()}
        if options.available_now:
            return counts  # Spark makes one batch of it, whatever a limit says
        if options.bytes_per_trigger is not None:
            stretches = {name: self._stretches(client, name, one) for name, one in waiting.items()}
            counts = share_bytes(stretches, options.bytes_per_trigger)
        if options.messages_per_trigger is not None:
            counts = share_messages(counts, options.messages_per_trigger)
        return counts

    def _stretches(self, client: blocking.Client, name: str, waiting: range) -> Iterator[Stretch]:
        segments = client.history.segments(name, waiting.start) if waiting else []
        for piece in cover(TopicPart.of_name(name), segments, waiting):
            if piece.segment is not None:
                mean = piece.segment.payload_bytes / piece.segment.messages
                yield Stretch(len(piece), int(len(piece) * mean))
            else:
                yield Stretch(len(piece), int(len(piece) * _mean_bytes(client, piece)))

    # ── what a batch consists of ────────────────────────────────────────────────────────────────

    def _slices(self, client: blocking.Client, start: Offsets, end: Offsets) -> list[Slice]:
        parts = [TopicPart.of_name(name) for name in end]
        there = available(client, parts)
        ranges: dict[str, tuple[range, ...]] = {}
        for part in parts:
            kept = there[part.name]
            first, stop = start.get(part.name, 0), end[part.name]
            if stop < first:
                if first <= kept.stop:
                    raise Rejected(f"{part.name}: a batch from offset {first} to {stop} goes backwards")
                first = kept.start
            wanted = check_loss(part, range(first, stop), kept, fail=self._options.fail_on_data_loss)
            ranges[part.name] = (wanted,)
        return Planner(self._options, Narrowing()).slices(client, ranges)

    def _ask(self, work: Callable[[blocking.Client], T]) -> T:
        return patiently(self._options.connection, work)


def _mean_bytes(client: blocking.Client, piece: Slice) -> float:
    """Of the payloads at the beginning of what only a broker has."""
    start, end = (
        Position.offset(offset) for offset in (piece.start, min(piece.start + SAMPLE_MESSAGES, piece.end))
    )
    with client.reader(piece.part.name, start=start, end=end) as reader:
        sizes = [pc.binary_length(batch.column("payload")) for batch in reader.batches()]
    return float(pc.mean(pa.chunked_array(sizes, pa.int32())).as_py() or 0.0) if sizes else 0.0
