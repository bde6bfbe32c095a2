"""Messages that come through a broker."""

from collections.abc import Iterator

import pyarrow as pa

from pydanube.client import blocking
from pydanube.client.position import Position
from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.spark.connection import Connection
from pydanube.spark.source.data_loss import check_loss
from pydanube.spark.topics import TopicPart


def delivered(
    connection: Connection, part: TopicPart, wanted: range, *, fail_on_data_loss: bool
) -> Iterator[pa.RecordBatch]:
    """A range of offsets as the native protocol delivers it.

    Raises:
        Rejected: OFFSET_GONE if retention was faster than this task, and that is to be an error.
    """
    start = wanted.start
    with connection.client() as client:
        try:
            for batch in _batches(client, part.name, wanted):
                start = batch.column("offset")[-1].as_py() + 1
                yield batch
        except DanubeError as error:
            if error.code is not ErrorCode.OFFSET_GONE:
                raise
            storage = client.history.storage(part.name)
            kept = range(storage.start_offset, storage.next_offset)
            rest = check_loss(part, range(start, wanted.stop), kept, fail=fail_on_data_loss)
            yield from _batches(client, part.name, rest)


def _batches(client: blocking.Client, name: str, wanted: range) -> Iterator[pa.RecordBatch]:
    if not wanted:
        return
    start, end = Position.offset(wanted.start), Position.offset(wanted.stop)
    with client.reader(name, start=start, end=end) as reader:
        yield from reader.batches()
