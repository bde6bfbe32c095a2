"""How far a running pipeline is."""

import ast
import time
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from pydanube.kernel.errors import DanubeError
from pydanube.spark.connection import Connection


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """After some batch."""

    batch: int
    rows: int
    """Read, in this run so far."""
    rows_per_second: float
    """In the last batch."""
    batch_seconds: float
    lag: int | None
    """Messages that are there and were not read yet; None if no broker answers, or nothing is read from topics."""
    at: float
    """Unix time."""


class ProgressMeter:
    """Sums up what Spark tells of the batches of one run."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._batch = -1
        self._rows = 0
        self._position: dict[str, int] = {}
        self.now: Progress | None = None

    def take(self, told: Iterable[Mapping[str, Any]]) -> bool:
        """What Spark tells of its last batches; whether there is news among it."""
        # Between batches Spark tells that nothing happens, by the number of the batch to come.
        news = [each for each in told if each["batchId"] > self._batch and "addBatch" in each["durationMs"]]
        for each in news:
            self._batch = each["batchId"]
            self._rows += _rows_of(each)
            self._position |= _position_of(each)
        if news:
            rows, seconds = _rows_of(news[-1]), news[-1]["durationMs"].get("triggerExecution", 0) / 1000
            self.now = Progress(
                batch=self._batch,
                rows=self._rows,
                rows_per_second=round(rows / seconds, 1) if seconds else 0.0,
                batch_seconds=seconds,
                lag=self._lag(),
                at=time.time(),
            )
        return bool(news)

    def _lag(self) -> int | None:
        if not self._position:
            return None
        try:
            with self._connection.client(timeout=5.0) as client:
                ends = {name: client.history.storage(name).next_offset for name in self._position}
        except DanubeError:
            return None
        return sum(max(0, end - self._position[name]) for name, end in ends.items())


def _position_of(told: Mapping[str, Any]) -> dict[str, int]:
    """Of topics: the next offset to be read, by part."""
    position: dict[str, int] = {}
    for source in told["sources"]:
        position |= _offsets(source["endOffset"])
    return position


def _rows_of(told: Mapping[str, Any]) -> int:
    """Of topics as their offsets say: Spark counts rows twice that go to a quarantine too."""
    rows = 0
    for source in told["sources"]:
        start, end = _offsets(source["startOffset"]), _offsets(source["endOffset"])
        read = sum(max(0, stop - start.get(name, 0)) for name, stop in end.items())
        rows += min(read, source["numInputRows"]) if end else source["numInputRows"]
    return rows


def _offsets(told: Any) -> dict[str, int]:
    """Empty if it is not what a topic's checkpoint holds."""
    try:
        # PySpark shows what was JSON as Python does.
        found = ast.literal_eval(told) if isinstance(told, str) else told
    except (ValueError, SyntaxError):
        return {}
    if not isinstance(found, dict):
        return {}
    is_ours = all(name.startswith("/") and isinstance(offset, int) for name, offset in found.items())
    return found if is_ours else {}
