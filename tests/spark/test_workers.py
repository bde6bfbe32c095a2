"""The Python workers of a session on this machine."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import SparkSession


def test_workers_begin_with_all_that_tasks_load_which_no_collection_of_garbage_looks_at(
    spark: SparkSession,
) -> None:
    def facts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import gc
        import sys

        for _ in batches:
            is_loaded = "pydanube.spark.source.batch_reader" in sys.modules
            yield pa.RecordBatch.from_pydict({"frozen": [gc.get_freeze_count()], "is_loaded": [is_loaded]})

    row = spark.range(1).mapInArrow(facts, "frozen long, is_loaded boolean").first()
    assert row is not None
    assert row.is_loaded
    assert row.frozen > 10_000
