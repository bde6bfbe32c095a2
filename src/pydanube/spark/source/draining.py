"""Running a stream until it has caught up."""

from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter


def run_until_caught_up(writer: DataStreamWriter) -> StreamingQuery:
    """Process what is there when the query starts, in batches within the limits of the source, then stop.

    What `trigger(availableNow=True)` is for, which Spark 4.1 runs as a single batch for sources in Python. Give the
    source `endingOffsets=latest`, or messages that keep coming keep it running.
    """
    query = writer.trigger(processingTime="0 seconds").start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query
