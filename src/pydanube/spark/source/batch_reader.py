"""Reading topics once, from fixed offsets to fixed offsets."""

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from pydanube.spark.source.filters import Narrowing, understand
from pydanube.spark.source.options import Ranges, ReadOptions
from pydanube.spark.source.slice_reader import SliceReader
from pydanube.spark.source.slices import Slice


class BatchReader(DataSourceReader):
    """Made for each query; what it reads was fixed before."""

    def __init__(self, options: ReadOptions, columns: Sequence[str], ranges: Ranges) -> None:
        self._options = options
        self._columns = columns
        self._ranges = ranges
        self._narrowing = Narrowing()

    def partitions(self) -> list[InputPartition]:
        # Not loaded by tasks, which only read.
        from pydanube.spark.source.planning import Planner  # noqa: PLC0415

        with self._options.connection.client() as client:
            return list(Planner(self._options, self._narrowing).slices(client, self._ranges))

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        # Without any slice Spark asks for None.
        if isinstance(partition, Slice):
            yield from SliceReader(self._options, self._columns, self._narrowing).read(partition)


class FilteringBatchReader(BatchReader):
    """The same with filters pushed down.

    A class of its own, because Spark refuses readers that can do so in sessions where it is not enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        self._narrowing, rest = understand(filters)
        return rest
