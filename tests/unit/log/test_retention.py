"""Which segments a policy gives up."""

import pytest

from pydanube.entries.run_file import RunDescriptor
from pydanube.kernel.policies import Retention
from pydanube.log.retention import MEBIBYTE, MINUTE_MS, expired

NOW_MS = 1000 * MINUTE_MS


def segment(number):
    """Ten offsets and one MiB each, written at minute `number`."""
    return RunDescriptor(
        run_id=str(number),
        topic_id=1,
        epoch=1,
        start_offset=number * 10,
        end_offset=number * 10 + 9,
        size=MEBIBYTE,
        checksum="",
        created_at=0,
        min_append_ms=number * MINUTE_MS,
        max_append_ms=number * MINUTE_MS,
        entry_count=10,
    )


SEGMENTS = [segment(number) for number in range(4)]


@pytest.mark.parametrize(
    ("policy", "consumed", "gone"),
    [
        (Retention(), 40, 0),
        (Retention(until_consumed=True), 40, 4),
        (Retention(until_consumed=True), 25, 2),
        (Retention(until_consumed=True), None, 0),
        (Retention(size_mb=3), None, 1),
        (Retention(size_mb=3), 40, 1),
        (Retention(size_mb=1), 15, 1),
        (Retention(size_mb=1, drop_unconsumed=True), 15, 3),
        (Retention(size_mb=4), None, 0),
        (Retention(size_mb=0), None, 0),
        (Retention(time_minutes=998), None, 2),
        (Retention(time_minutes=998), 5, 0),
        (Retention(time_minutes=998, drop_unconsumed=True), 5, 2),
        (Retention(time_minutes=0), None, 0),
        (Retention(time_minutes=999, size_mb=2), None, 2),
        (Retention(size_mb=3, until_consumed=True), 30, 3),
    ],
)
def test_the_oldest_go_first_and_what_is_awaited_stays(policy, consumed, gone):
    assert expired(SEGMENTS, policy, unconsumed_from=consumed, now_ms=NOW_MS) == SEGMENTS[:gone]
