"""Runs that share a file become segments like any other, and leave it one by one."""

from pathlib import Path

import pytest

from pydanube.kernel.errors import Corrupt
from pydanube.kernel.names import TopicName
from pydanube.log import TopicLog
from pydanube.log.staging import BUNDLED_TOPICS_MIN
from tests.unit.history.storage_rig import StorageRig, publish, read

TOPICS = [TopicName("default", f"topic-{number}") for number in range(BUNDLED_TOPICS_MIN)]


async def bundled(rig: StorageRig) -> tuple[list[TopicLog], Path]:
    """Ten messages of each topic in one bundle."""
    logs = await rig.open(*TOPICS)
    for log in logs:
        await publish(log, 10, size=100)
    await rig.journal.stage_now()
    assert rig.run_files() == []
    (bundle,) = (rig.folder / "bundles").iterdir()
    return logs, bundle


async def test_segments_are_made_of_a_bundle_and_the_last_one_frees_it(rig: StorageRig) -> None:
    logs, bundle = await bundled(rig)
    for log in logs:
        (run,) = log.history.runs
        assert await rig.seal(log) == [(0, 10)]
        if log is not logs[-1]:
            with bundle.open("rb") as file:
                file.seek(run.position)
                assert file.read(run.size) == bytes(run.size)
    assert not bundle.exists()
    assert [await read(log) for log in logs] == [list(range(10))] * len(logs)


async def test_a_bundle_is_found_again_by_the_topics_that_still_have_something_in_it(rig: StorageRig) -> None:
    logs, bundle = await bundled(rig)
    await rig.seal(logs[2])
    await rig.close()
    logs = await rig.open(*TOPICS)
    assert [await read(log) for log in logs] == [list(range(10))] * len(logs)
    for log in logs:
        await rig.seal(log)
    assert not bundle.exists()


@pytest.mark.parametrize("place", ["first byte", "an entry", "last byte"])
async def test_a_damaged_part_becomes_no_segment(rig: StorageRig, place: str) -> None:
    logs, bundle = await bundled(rig)
    (run,) = logs[5].history.runs
    at = {"first byte": 0, "an entry": run.size // 2, "last byte": run.size - 1}[place]
    data = bytearray(bundle.read_bytes())
    data[run.position + at] ^= 1
    bundle.write_bytes(data)
    with pytest.raises(Corrupt, match=f"{bundle} cannot become part of a segment: .* at byte") as caught:
        await rig.seal(logs[5])
    position = int(caught.value.text.partition("at byte ")[2].partition(":")[0])
    assert run.position <= position <= run.position + at
    assert await rig.seal(logs[6]) == [(0, 10)]


async def test_a_bundle_cut_short_is_told(rig: StorageRig) -> None:
    logs, bundle = await bundled(rig)
    last = max(logs, key=lambda log: log.history.runs[0].position)
    (run,) = last.history.runs
    with bundle.open("r+b") as file:
        file.truncate(run.position + run.size - 1)
    with pytest.raises(Corrupt, match=f"{run.size - 1} bytes instead of {run.size}"):
        await rig.seal(last)
    with pytest.raises(Corrupt, match=f"run {bundle} ends at byte {run.position + run.size - 1}"):
        await read(last)
