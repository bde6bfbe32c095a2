"""What Spark tells of batches, summed up; and which failures are worth another try."""

from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from pydanube.kernel.errors import Conflict, Rejected, Unavailable
from pydanube.spark.connection import Connection
from pydanube.spark.pipelines.case_differences import differences
from pydanube.spark.pipelines.durations import parse_duration
from pydanube.spark.pipelines.progress import ProgressMeter
from pydanube.spark.pipelines.running import is_final


def told(batch: int, rows: int, *, ms: int = 500, ran: bool = True) -> dict[str, Any]:
    durations = {"triggerExecution": ms, **({"addBatch": ms} if ran else {})}
    source = {"startOffset": "None", "endOffset": "{'logOffset': 3}", "numInputRows": rows}
    return {"batchId": batch, "numInputRows": rows, "durationMs": durations, "sources": [source]}


def test_each_batch_counts_once_and_idle_turns_do_not() -> None:
    meter = ProgressMeter(Connection("danube://127.0.0.1:1"))
    assert not meter.take([told(0, 0, ran=False)])
    assert meter.take([told(0, 0, ran=False), told(0, 10)])
    assert not meter.take([told(0, 10), told(1, 0, ran=False)])
    assert meter.take([told(0, 10), told(1, 4), told(2, 6, ms=2000)])
    assert meter.now is not None
    assert (meter.now.batch, meter.now.rows, meter.now.rows_per_second, meter.now.batch_seconds) == (
        2,
        20,
        3.0,
        2.0,
    )
    assert meter.now.lag is None, "nothing of it is a topic"


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (Unavailable("no broker answers"), False),
        (Rejected("no such topic"), True),
        (Conflict("other rows"), True),
        (AnalysisException("no such column"), True),
        (PySparkException("Job aborted: a task died"), False),
        (PySparkException("…\npydanube.kernel.errors.Corrupt: a segment is damaged"), True),
        (PySparkException("a payload cannot be decoded: topic /default/a"), True),
        (PySparkException("lost\n=== Streaming Query ===\n concat(a payload cannot be decoded: "), False),
    ],
)  # fmt: skip
def test_what_cannot_get_better_is_not_tried_again(error: Exception, final: bool) -> None:
    assert is_final(error) is final


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("10s", 10_000), ("5 Minutes", 300_000), (" 1 h ", 3_600_000), ("2d", 172_800_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration(text).ms == ms


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "1.5s", "1 fortnight", "9999d"])
def test_texts_that_are_no_durations(text: str) -> None:
    with pytest.raises(Rejected, match="invalid duration"):
        parse_duration(text)


def test_rows_are_matched_whatever_their_order_and_however_vague_the_expectation() -> None:
    found = [{"a": 1, "b": 1}, {"a": 1, "b": 2}]
    assert differences([{"a": 1}, {"a": 1, "b": 1}], found) == []
    assert differences([{"b": 2}, {}], found) == []
    (missing,) = differences([{"a": 1}, {"a": 1}, {"a": 1}], found)
    assert str(missing) == "missing: {a: 1}"
    (wrong,) = differences([{"a": True, "b": 1}, {"b": 2}], found)
    assert str(wrong) == "{a: True, b: 1}: a is 1, expected True"
