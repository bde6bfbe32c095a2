"""Files brought from elsewhere are looked at in the converter's process, whatever they are."""

import signal
import sys
from pathlib import Path

import pytest

from pydanube.history.convert_job import CheckJob
from pydanube.history.converter import Converter
from pydanube.kernel.errors import Corrupt, Rejected, Unavailable


@pytest.fixture
async def converter():
    converter = Converter()
    yield converter
    await converter.close()


@pytest.fixture
def segments(converter, make_run, make_job, row):
    async def make(*counts: int) -> list[str]:
        paths, offset = [], 0
        for count in counts:
            run = make_run([row(b"x") for _ in range(count)], start=offset)
            paths.append((await converter.convert(make_job(run))).path)
            offset += count
        return paths

    return make


def check_job(files: list[str], topic: str = "/default/t", topic_id: int = 1) -> CheckJob:
    return CheckJob(topic=topic, topic_id=topic_id, files=tuple(files), created_ms=5_000)


async def test_contiguous_segments_of_the_topic_are_described(converter, segments, make_job, make_run, row):
    files = await segments(2, 3)
    topic, topic_id = identity(make_job(make_run([row(b"x")])))
    found = await converter.check(check_job(files, topic, topic_id))
    assert [(segment.start_offset, segment.end_offset) for segment in found] == [(0, 1), (2, 4)]
    assert all(segment.segment_id.endswith("-5000.parquet") for segment in found)


async def test_a_gap_another_topic_and_nothing_are_refused(converter, segments, make_job, make_run, row):
    files = await segments(2, 3)
    topic, topic_id = identity(make_job(make_run([row(b"x")])))
    with pytest.raises(Rejected, match="without a gap"):
        await converter.check(check_job(files[::-1], topic, topic_id))
    with pytest.raises(Rejected, match="not for /default/other"):
        await converter.check(check_job(files, "/default/other", topic_id))
    with pytest.raises(Rejected, match="no file was sent"):
        await converter.check(check_job([], topic, topic_id))


async def test_what_is_not_a_segment_is_named_corrupt(converter, tmp_path: Path):
    file = tmp_path / "0.parquet"
    file.write_bytes(b"PAR1 is not enough PAR1")
    with pytest.raises(Corrupt, match="file 0 of the import"):
        await converter.check(check_job([str(file)]))


@pytest.mark.parametrize(("number", "kind"), [(signal.SIGABRT, Corrupt), (signal.SIGKILL, Unavailable)])
async def test_a_file_that_kills_the_process_kills_nothing_else(number, kind):
    script = f"import os; input(); os.kill(os.getpid(), {int(number)})"
    converter = Converter(command=(sys.executable, "-c", script))
    with pytest.raises(kind):
        await converter.check(check_job(["any"]))
    await converter.close()


def identity(job) -> tuple[str, int]:
    return job.topic, job.runs[0].descriptor.topic_id
