"""Many topics with little in a journal file: their runs share files, and everything else is as if they did not."""

import pytest

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import Corrupt, DanubeError, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import Retention
from pydanube.log import JournalSettings
from pydanube.log.staging import BUNDLED_BYTES_MAX, BUNDLED_TOPICS_MIN

TOPICS = [TopicName("default", f"topic-{number}") for number in range(BUNDLED_TOPICS_MIN)]


@pytest.fixture
def rig(rig):
    rig.settings = JournalSettings(file_bytes=256 * 1024, cache_bytes_max=0, space_retry_ms=1)
    return rig


async def open_all(rig, topics=TOPICS):
    journal = await rig.open()
    logs = [await journal.open_topic(number, name) for number, name in enumerate(topics, 1)]
    await journal.forget_unopened()
    return journal, logs


async def staged(rig, append, topics=TOPICS):
    """Two messages of each topic in runs, one in the journal."""
    journal, logs = await open_all(rig, topics)
    for number, log in enumerate(logs):
        await append(log, bodies(number)[:2])
    await journal.stage_now()
    for number, log in enumerate(logs):
        await append(log, bodies(number)[2:])
    return journal, logs


def bodies(number):
    return [b"<%d.%d>" % (number, each) for each in range(3)]


def rows(number):
    return list(enumerate(bodies(number)))


def bundles(rig):
    return [path for path in sorted(rig.disk.files()) if path.parent.name == "bundles"]


def own_files(rig):
    return [path for path in rig.disk.files() if path.suffix == ".run"]


async def restart(rig, topics=TOPICS):
    rig.kill()
    return await open_all(rig, topics)


async def test_many_small_runs_share_a_file_and_are_found_again(rig, append, read):
    _, logs = await staged(rig, append)
    assert len(bundles(rig)) == 1
    assert own_files(rig) == []
    for _ in range(2):
        assert [await read(log) for log in logs] == [rows(number) for number in range(len(logs))]
        assert all(log.read(0, messages_max=1, bytes_max=1) is None for log in logs), "read from the bundle"
        assert [await log.find_time(7) for log in logs] == [0] * len(logs)
        _, logs = await restart(rig)


async def test_few_topics_and_large_ones_have_files_of_their_own(rig, append, read):
    rig.settings = JournalSettings(file_bytes=16 << 20, cache_bytes_max=0)
    journal, logs = await open_all(rig)
    for log in logs[1:]:
        await append(log, [b"small"])
    await journal.stage_now()
    assert (len(bundles(rig)), len(own_files(rig))) == (0, BUNDLED_TOPICS_MIN - 1)
    for log in logs:
        await append(log, [b"small"])
    large = await journal.open_topic(99, TopicName("default", "large"))
    await append(large, [bytes(BUNDLED_BYTES_MAX)])
    await journal.stage_now()
    assert (len(bundles(rig)), len(own_files(rig))) == (1, BUNDLED_TOPICS_MIN)
    assert await read(large) == [(0, bytes(BUNDLED_BYTES_MAX))]


async def test_a_run_that_goes_leaves_no_bytes_and_the_last_one_takes_the_file_along(rig, append, read):
    _, logs = await staged(rig, append)
    (bundle,) = bundles(rig)
    for number, log in enumerate(logs):
        assert bodies(number)[1] in rig.disk.files()[bundle]
        await log.retain(Retention(until_consumed=True), unconsumed_from=2, now_ms=0)
        if log is not logs[-1]:
            assert bodies(number)[1] not in rig.disk.files()[bundle]
            assert await read(logs[number + 1]) == rows(number + 1)
    assert bundles(rig) == []
    assert [await read(log) for log in logs] == [rows(number)[2:] for number in range(len(logs))]


async def test_a_deleted_topic_leaves_no_bytes_in_a_bundle(rig, append, read):
    _, logs = await staged(rig, append)
    await logs[3].delete()
    (bundle,) = bundles(rig)
    assert bodies(3)[1] not in rig.disk.files()[bundle]
    assert await read(logs[4]) == rows(4)
    rig.kill()
    names = dict(enumerate(TOPICS, 1))
    del names[4]
    journal = await rig.open()
    logs = [await journal.open_topic(number, name) for number, name in names.items()]
    await journal.forget_unopened()
    assert [await read(log) for log in logs] == [rows(number - 1) for number in names]


async def test_what_a_process_that_ended_left_in_bundles_goes_at_the_next_start(rig, append, read):
    """A range whose descriptor is gone already, a bundle nobody names, one that was not finished."""
    _, logs = await staged(rig, append)
    (bundle,) = bundles(rig)

    def broken(call, path):
        if call == "discard":
            raise OSError(5, "Input/output error")

    rig.disk.before = broken
    with pytest.raises(Unavailable):
        await logs[5].retain(Retention(until_consumed=True), unconsumed_from=2, now_ms=0)
    rig.disk.before = lambda call, path: None
    assert bodies(5)[1] in rig.disk.files()[bundle]
    rig.kill()
    strays = {bundle.with_name("stray.bundle"): b"x", bundle.with_name("other.bundle.tmp"): b"x"}
    rig.disk = MemoryDisk({**rig.disk.files(), **strays})
    _, logs = await open_all(rig)
    assert bundles(rig) == [bundle]
    assert bodies(5)[1] not in rig.disk.files()[bundle]
    assert bodies(4)[1] in rig.disk.files()[bundle]
    assert [await read(log) for log in logs] == [rows(each)[2 if each == 5 else 0 :] for each in range(16)]


async def test_a_topic_deleted_before_the_others_are_opened_leaves_their_bundle_alone(rig, append, read):
    _, logs = await staged(rig, append)

    async def refused(key, **options):
        raise Unavailable("the metadata store is gone")

    delete, rig.metadata.delete = rig.metadata.delete, refused
    await logs[0].delete()
    rig.metadata.delete = delete
    assert len(await rig.metadata.list("/storage/deletions")) == 1
    _, logs = await restart(rig)
    assert await rig.metadata.list("/storage/deletions") == []
    assert [await read(log) for log in logs] == [[], *(rows(number) for number in range(1, len(logs)))]
    (bundle,) = bundles(rig)
    assert bodies(0)[1] not in rig.disk.files()[bundle]


async def test_staging_that_failed_is_done_again(rig, append, read):
    journal, logs = await open_all(rig)
    for number, log in enumerate(logs):
        await append(log, bodies(number))

    async def refused(compares, writes):
        raise DanubeError("the metadata store is gone")

    transact, rig.metadata.transact = rig.metadata.transact, refused
    with pytest.raises(DanubeError, match="is gone"):
        await journal.stage_now()
    assert journal.unstaged_bytes > 0
    rig.metadata.transact = transact
    rig.clock.ms += 1
    await journal.stage_now()
    assert journal.unstaged_bytes == 0
    _, logs = await restart(rig)
    assert [await read(log) for log in logs] == [rows(number) for number in range(len(logs))]
    assert len(bundles(rig)) == 1


async def test_damage_in_a_bundle_is_named_by_file_and_byte_and_concerns_one_topic(rig, append, read):
    await staged(rig, append)
    (bundle,) = bundles(rig)
    files = rig.disk.files()
    at = files[bundle].index(bodies(7)[1])
    damaged = bytearray(files[bundle])
    damaged[at] ^= 1
    rig.kill()
    rig.disk = MemoryDisk({**files, bundle: bytes(damaged)})
    _, logs = await open_all(rig)
    with pytest.raises(Corrupt, match=rf"{bundle} is damaged at byte {at // 4096 * 4096 + 64 + 64 + 5}:"):
        await read(logs[7])
    assert await read(logs[6]) == rows(6)
    assert await read(logs[8]) == rows(8)
