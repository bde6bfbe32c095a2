"""A sink that kills Spark, or waits while somebody kills the broker, at points written down beforehand."""

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pydanube.spark.sink.writers import StreamTopicWriter, make_stream_writer
from pydanube.spark.source.data_source import DanubeDataSource


class FatalPoints:
    """Files in a folder, each named like the point at which something happens once."""

    def __init__(self, folder: Path, jvm: int = 0) -> None:
        self._folder = folder
        self._jvm = jvm

    def plan_death(self, point: str) -> None:
        (self._folder / point).touch()

    def plan_pause(self, point: str) -> None:
        """The first to meet it waits for `end_pause`."""
        (self._folder / f"{point}.pause").touch()
        os.mkfifo(self._folder / f"{point}.reached")
        os.mkfifo(self._folder / f"{point}.go")

    def wait_for_pause(self, point: str) -> None:
        (self._folder / f"{point}.reached").read_bytes()

    def end_pause(self, point: str) -> None:
        (self._folder / f"{point}.go").write_bytes(b"go")

    def unmet(self) -> list[str]:
        return sorted(path.name for path in self._folder.iterdir() if not path.is_fifo())

    def meet(self, point: str) -> None:
        if self._is_first_at(point):
            # The process that meets it lives on as long as it has something to do, as after a real accident.
            os.kill(self._jvm, signal.SIGKILL)
        if self._is_first_at(f"{point}.pause"):
            (self._folder / f"{point}.reached").write_bytes(b"here")
            (self._folder / f"{point}.go").read_bytes()

    def _is_first_at(self, point: str) -> bool:
        """Tasks run beside each other: who removes the file has met the point, the others pass."""
        try:
            (self._folder / point).unlink()
        except FileNotFoundError:
            return False
        return True


class DyingSource(DanubeDataSource):
    """`danube` with three more options: fatalPoints, the folder; jvm, whom to kill; label, what points begin with."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "DyingWriter":  # type: ignore[override]
        options = dict(self.options)
        folder, jvm, label = (options.pop(name) for name in ("fatalpoints", "jvm", "label"))
        points = FatalPoints(Path(folder), int(jvm))
        return DyingWriter(make_stream_writer(options, schema, overwrite=overwrite), points, label)


class DyingWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: StreamTopicWriter, points: FatalPoints, label: str) -> None:
        self._writer = writer
        self._points = points
        self._label = label

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")

        def met() -> Iterator[pa.RecordBatch]:
            for number, rows in enumerate(iterator):
                self._points.meet(f"{self._label}-batch{batch}-before{number}")
                yield rows
            self._points.meet(f"{self._label}-batch{batch}-end")

        return self._writer.write(met())

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.commit(messages, batchId)
        self._points.meet(f"{self._label}-commit{batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)
