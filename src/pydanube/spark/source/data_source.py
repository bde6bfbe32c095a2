"""The data source `danube`: what Spark loads for `format("danube")`.

Every task loads this module, and most read files only: whatever needs a client is imported where it is used.
"""

import sys
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.source.batch_reader import BatchReader, FilteringBatchReader
from pydanube.spark.source.options import Ranges, ReadOptions, nearest, parse_options

if TYPE_CHECKING:
    from pydanube.spark.sink.writers import BatchTopicWriter, StreamTopicWriter
    from pydanube.spark.source.stream_reader import StreamReader

ROW: Final[StructType] = from_arrow_schema(MESSAGE_SCHEMA)
_PUSHDOWN_WORKER: Final = "pyspark.sql.worker.data_source_pushdown_filters"


class DanubeDataSource(DataSource):
    """Topics as rows; docs/spark.md has the options and columns."""

    _fixed: Ranges | DanubeError | None = None

    @classmethod
    def name(cls) -> str:
        return "danube"

    def schema(self) -> StructType:
        return StructType([ROW[name] for name in parse_options(self.options).columns])

    def reader(self, schema: StructType) -> BatchReader:
        options = parse_options(self.options)
        columns = _columns(schema)
        if isinstance(self._fixed, DanubeError):
            raise self._fixed
        ranges = self._fixed if self._fixed is not None else _fix(options)
        # Spark refuses readers that take filters in sessions where pushing them down is not enabled. The worker that
        # is about to push some has loaded this module; every other one, and every other session, needs none.
        kind = FilteringBatchReader if _PUSHDOWN_WORKER in sys.modules else BatchReader
        return kind(options, columns, ranges)

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802
        from pydanube.spark.source.stream_reader import StreamReader  # noqa: PLC0415

        options = parse_options(self.options)
        if options.ranges is not None:
            raise Rejected("ranges are for batches: set topic, topics or topicPattern for a stream")
        return StreamReader(options, _columns(schema))

    def writer(self, schema: StructType, overwrite: bool) -> "BatchTopicWriter":
        from pydanube.spark.sink.writers import make_writer  # noqa: PLC0415

        return make_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamTopicWriter":  # noqa: N802
        from pydanube.spark.sink.writers import make_stream_writer  # noqa: PLC0415

        return make_stream_writer(self.options, schema, overwrite=overwrite)

    def __getstate__(self) -> dict[str, Any]:
        """Spark makes one instance for a DataFrame, and a copy of it for each query: the offsets travel with it.

        Why they cannot be told, if so, is said when something is read: streams begin elsewhere.
        """
        if self._fixed is None:
            try:
                self._fixed = _fix(parse_options(self.options))
            except DanubeError as error:
                self._fixed = error
        return self.__dict__


def _fix(options: ReadOptions) -> Ranges:
    if options.ranges is not None:
        return options.ranges
    from pydanube.spark.source.planning import fix_ranges  # noqa: PLC0415

    with options.connection.client() as client:
        return fix_ranges(client, options)


def _columns(schema: StructType) -> list[str]:
    """The names of a schema, which may have some of the columns in any order.

    Raises:
        Rejected: it has others, or other types.
    """
    for field in schema:
        if field.name not in ROW.names:
            raise Rejected(
                f"unknown column {field.name!r} in the schema given: {nearest(field.name, ROW.names)}"
            )
        if field.dataType != ROW[field.name].dataType:
            raise Rejected(
                f"column {field.name} is {ROW[field.name].dataType.simpleString()}, not "
                f"{field.dataType.simpleString()}: read it as it is and cast it afterwards"
            )
    return schema.fieldNames()
