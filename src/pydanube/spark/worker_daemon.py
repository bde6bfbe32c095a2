"""The process that Spark's Python workers are forked from, with all that tasks load, loaded once and for all of them.

Spark's own runs a full collection of garbage in a worker after every task: 50 to 100 ms for the modules of PySpark,
Arrow and pandas alone, which are no garbage. Here they are frozen before the first fork, and a collection takes 1 ms.
"""

import gc

import pandas  # noqa: F401
from pyspark import daemon

import pydanube.spark.sink.writers
import pydanube.spark.source.batch_reader
import pydanube.spark.source.stream_reader  # noqa: F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]
