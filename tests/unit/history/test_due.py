"""Which runs become a segment, and when."""

import pytest

from pydanube.entries.run_file import RunDescriptor
from pydanube.history.due import due_runs

NOW_MS = 1_700_000_000_000


def run(number: int, size: int, age_seconds: int = 0) -> RunDescriptor:
    return RunDescriptor(
        run_id=str(number),
        topic_id=1,
        epoch=1,
        start_offset=number * 10,
        end_offset=number * 10 + 9,
        size=size,
        checksum="",
        created_at=NOW_MS // 1000 - age_seconds,
        min_append_ms=0,
        max_append_ms=0,
        entry_count=10,
    )


@pytest.mark.parametrize(
    ("sizes", "ages", "on_demand", "taken"),
    [
        ([], [], True, 0),
        ([10], [0], False, 0),
        ([10, 20], [0, 0], True, 2),
        ([100], [0], False, 1),
        ([60, 30], [0, 0], False, 0),
        ([60, 30, 20], [0, 0, 0], False, 2),
        ([250, 10], [0, 0], False, 1),
        ([10, 10], [300, 0], False, 2),
        ([10, 10], [299, 299], False, 0),
        ([60, 60], [0, 0], True, 1),
    ],
)
def test_enough_or_old_or_asked_for(sizes: list[int], ages: list[int], on_demand: bool, taken: int) -> None:
    runs = [run(number, size, age) for number, (size, age) in enumerate(zip(sizes, ages, strict=True))]
    due = due_runs(runs, segment_bytes=100, age_ms_max=300_000, now_ms=NOW_MS, on_demand=on_demand)
    assert due == runs[:taken]
