"""The converter: a process that comes when it is needed, goes when it is not, and may die."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from subprocess import Popen

import msgspec
import pytest

from pydanube.history import converter as converter_module
from pydanube.history.converter import WORKER, Converter
from pydanube.history.segment_file import read_facts
from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, Unavailable

PATIENCE_SECONDS = 60


@pytest.fixture
async def converter():
    converter = Converter()
    yield converter
    await converter.close()


@pytest.fixture
def scripted():
    """Makes converters whose worker is a line of Python."""

    def make(script: str, **settings: object) -> Converter:
        return Converter(command=(sys.executable, "-c", script), **settings)

    return make


async def test_a_segment_is_made_in_another_process(converter, make_run, make_job, row):
    job = make_job(make_run([row(b"a"), row(b"b")]))
    converted = await converter.convert(job)
    assert read_facts(converted.path) == converted.descriptor
    assert converted.descriptor.end_offset == 1
    assert converter.process_id not in (None, os.getpid())
    assert os.listdir(job.spool) == [converted.descriptor.segment_id]


def run_ns(process_id: int, policy: int) -> int:
    """How long threads of that scheduling policy have run."""
    return sum(
        int(Path(f"/proc/{process_id}/task/{thread}/schedstat").read_text().split()[0])
        for thread in os.listdir(f"/proc/{process_id}/task")
        if os.sched_getscheduler(int(thread)) == policy
    )


async def test_the_worker_gives_way_to_the_broker(converter, make_run, make_job, row):
    await converter.convert(make_job(make_run([row(b"a")])))
    threads = [int(thread) for thread in os.listdir(f"/proc/{converter.process_id}/task")]
    (patient,) = [thread for thread in threads if os.sched_getscheduler(thread) == os.SCHED_IDLE]
    ours = os.getpriority(os.PRIO_PROCESS, 0)
    assert os.getpriority(os.PRIO_PROCESS, patient) == min(ours + 10, 19)


@pytest.mark.parametrize("is_hurried", [False, True])
async def test_a_hurried_job_gives_way_to_nobody(converter, make_run, make_job, row, is_hurried):
    job = make_job(make_run([row(bytes(1000))] * 1000))
    await converter.convert(job)
    process_id = converter.process_id
    patient, other = run_ns(process_id, os.SCHED_IDLE), run_ns(process_id, os.SCHED_OTHER)
    await converter.convert(msgspec.structs.replace(job, is_hurried=is_hurried))
    patient = run_ns(process_id, os.SCHED_IDLE) - patient
    other = run_ns(process_id, os.SCHED_OTHER) - other
    assert (other > patient) == is_hurried
    assert os.getpriority(os.PRIO_PROCESS, process_id) == os.getpriority(os.PRIO_PROCESS, 0)


async def test_the_interrupt_key_is_not_for_the_worker(converter, make_run, make_job, row):
    job = make_job(make_run([row(b"a")]))
    await converter.convert(job)
    pid = converter.process_id
    os.kill(pid, signal.SIGINT)
    await converter.convert(job)
    assert converter.process_id == pid


async def test_jobs_share_one_worker_one_after_the_other(converter, make_run, make_job, row):
    jobs = [make_job(make_run([row(b"a")], start=number)) for number in range(4)]
    converted = await asyncio.gather(*[converter.convert(job) for job in jobs])
    assert [one.descriptor.start_offset for one in converted] == [0, 1, 2, 3]
    first = converter.process_id
    await converter.convert(jobs[0])
    assert converter.process_id == first


async def test_what_went_wrong_comes_back_as_it_was_raised(converter, make_run, make_job, row):
    source = make_run([row(b"a")])
    Path(source.path).unlink()
    with pytest.raises(Corrupt, match=f"{source.path}.*missing") as caught:
        await converter.convert(make_job(source))
    assert caught.value.code is ErrorCode.SEGMENT_CORRUPT
    await converter.convert(make_job(make_run([row(b"b")])))


async def test_an_idle_worker_ends_and_a_job_starts_another(make_run, make_job, row):
    converter = Converter(idle_seconds=0)
    job = make_job(make_run([row(b"a")]))
    await converter.convert(job)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while converter.process_id is not None:
            await asyncio.sleep(0.01)
    await converter.convert(job)
    await converter.close()


async def test_a_dead_worker_is_told_and_replaced(converter, make_run, make_job, row):
    job = make_job(make_run([row(b"a")]))
    await converter.convert(job)
    os.kill(converter.process_id, signal.SIGSTOP)
    conversion = asyncio.create_task(converter.convert(job))
    await asyncio.sleep(0)
    os.kill(converter.process_id, signal.SIGKILL)
    with pytest.raises(Unavailable, match=r"exit code -9 .*/default/orders") as caught:
        await conversion
    assert caught.value.code is ErrorCode.STORAGE_FAILED
    assert (await converter.convert(job)).descriptor.end_offset == 0


async def test_a_worker_that_died_between_jobs_is_replaced_unnoticed_or_told(
    converter, make_run, make_job, row
):
    job = make_job(make_run([row(b"a")]))
    await converter.convert(job)
    os.kill(converter.process_id, signal.SIGKILL)
    try:
        await converter.convert(job)
    except Unavailable:
        await converter.convert(job)


async def test_cancelling_kills_the_worker_and_removes_what_it_wrote(scripted, make_run, make_job, row):
    job = make_job(make_run([row(b"a")], start=12))
    unfinished = Path(job.spool) / f"data-{12:020}-{7:016x}-{job.created_ms}.unfinished"
    converter = scripted(
        f"import sys; sys.stdin.readline(); open({str(unfinished)!r}, 'w').close(); sys.stdin.read()"
    )
    conversion = asyncio.create_task(converter.convert(job))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not unfinished.exists():
            await asyncio.sleep(0.01)
    pid = converter.process_id
    conversion.cancel()
    with pytest.raises(asyncio.CancelledError):
        await conversion
    assert converter.process_id is None
    assert not Path(f"/proc/{pid}").exists()
    assert not unfinished.exists()
    await converter.close()


async def test_a_worker_that_takes_too_long_is_killed(scripted, make_run, make_job, row):
    converter = scripted("import sys; sys.stdin.read()", job_seconds_max=0.05)
    with pytest.raises(Unavailable, match=r"more than 0.05 s for a segment of /default/orders"):
        await converter.convert(make_job(make_run([row(b"a")])))
    assert converter.process_id is None
    await converter.close()


async def test_jobs_that_wait_are_bounded(scripted, make_run, make_job, row):
    converter = scripted("import sys; sys.stdin.read()", waiting_max=2)
    job = make_job(make_run([row(b"a")]))
    waiting = [asyncio.create_task(converter.convert(job)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="2 segments wait") as caught:
        await converter.convert(job)
    assert caught.value.code is ErrorCode.OVERLOADED
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await converter.close()


async def test_closing_ends_the_job_under_way_and_refuses_others(scripted, make_run, make_job, row):
    converter = scripted("import sys; sys.stdin.read()")
    job = make_job(make_run([row(b"a")]))
    conversion = asyncio.create_task(converter.convert(job))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while converter.process_id is None:
            await asyncio.sleep(0.01)
    await converter.close()
    for attempt in (conversion, converter.convert(job)):
        with pytest.raises(Unavailable, match="stopping") as caught:
            await attempt
        assert caught.value.code is ErrorCode.STOPPING


async def test_what_the_worker_complains_of_is_logged(scripted, make_run, make_job, row, caplog):
    failure = '{"failure": {"kind": "DanubeError", "code": 507, "text": "a bug"}}'
    converter = scripted(
        f"import sys; sys.stdin.readline(); print('oh dear', file=sys.stderr); print('{failure}', flush=True)"
    )
    with caplog.at_level(logging.WARNING, "pydanube.history"), pytest.raises(DanubeError, match="a bug"):
        await converter.convert(make_job(make_run([row(b"a")])))
    await converter.close()
    assert "oh dear" in caplog.text


async def test_a_worker_that_cannot_be_started_may_be_tried_again(make_run, make_job, row):
    converter = Converter(command=("/nonexistent/python",))
    with pytest.raises(Unavailable, match="cannot be started"):
        await converter.convert(make_job(make_run([row(b"a")])))
    await converter.close()


async def test_the_worker_ends_with_its_input(make_run, make_job, row):
    worker = await asyncio.create_subprocess_exec(
        *WORKER, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    worker.stdin.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await worker.wait() == 0


async def test_a_line_that_is_no_job_does_not_end_the_worker(make_run, make_job, row):
    worker = await asyncio.create_subprocess_exec(
        *WORKER,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    async with asyncio.timeout(PATIENCE_SECONDS):
        for _ in range(2):
            worker.stdin.write(b"{}\n")
            assert b'"code":507' in await worker.stdout.readline()
        worker.stdin.close()
        assert await worker.wait() == 0


async def test_a_worker_that_is_given_up_while_it_starts_is_ended(make_run, make_job, row, monkeypatch):
    started = []

    def noting(*arguments, **options):
        started.append(Popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(converter_module, "Popen", noting)
    converter = Converter()
    converting = asyncio.create_task(converter.convert(make_job(make_run([row(b"a")]))))
    while not started:
        await asyncio.sleep(0)
    converting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await converting
    await converter.close()
    (process,) = started
    assert process.poll() == -signal.SIGKILL
    assert process.stdin.closed
