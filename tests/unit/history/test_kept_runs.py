"""Runs in journal files that were kept become segments like any other, and leave the file one by one."""

from pathlib import Path

import pytest

from pydanube.entries.extents import Extents, table_bytes
from pydanube.entries.run_file import RunDescriptor
from pydanube.kernel.errors import Corrupt
from pydanube.log import TopicLog
from tests.unit.history.storage_rig import OTHER, TOPIC, StorageRig, publish, read


async def kept(rig: StorageRig) -> tuple[list[TopicLog], Path]:
    """Three messages of each topic in one kept file."""
    logs = await rig.open(TOPIC, OTHER)
    for log in logs:
        await publish(log, 3, size=25_000)
    await rig.journal.stage_now()
    assert rig.run_files() == []
    (file,) = (rig.folder / "bundles").iterdir()
    return logs, file


def places(file: Path, run: RunDescriptor) -> Extents:
    with file.open("rb") as opened:
        opened.seek(run.position)
        return Extents.decode(opened.read(table_bytes(run.places)), run.places)


async def test_segments_are_made_of_a_kept_file_and_the_last_one_frees_it(rig: StorageRig) -> None:
    logs, file = await kept(rig)
    (run,) = logs[0].history.runs
    entries = places(file, run).places
    assert await rig.seal(logs[0]) == [(0, 3)]
    for position, size in entries:
        assert file.read_bytes()[position : position + size] == bytes(size), "of the run nothing is left"
    assert await rig.seal(logs[1]) == [(0, 3)]
    assert not file.exists()
    assert [await read(log) for log in logs] == [[0, 1, 2]] * 2


async def test_a_kept_file_is_found_again(rig: StorageRig) -> None:
    logs, file = await kept(rig)
    await rig.seal(logs[1])
    await rig.close()
    logs = await rig.open(TOPIC, OTHER)
    assert [await read(log) for log in logs] == [[0, 1, 2]] * 2
    assert await rig.seal(logs[0]) == [(0, 3)]
    assert not file.exists()


async def test_a_file_that_the_journal_still_has_stays_as_it_is(rig: StorageRig) -> None:
    """As after a process that ended before the journal had let go: what it holds may be all there is of others."""
    logs, file = await kept(rig)
    (run,) = logs[0].history.runs
    journals = rig.folder / "name of the journal"
    journals.hardlink_to(file)
    whole = file.read_bytes()
    await rig.seal(logs[0])
    await rig.close()
    logs = await rig.open(TOPIC, OTHER)
    assert file.read_bytes() == whole
    await rig.close()
    journals.unlink()
    logs = await rig.open(TOPIC, OTHER)
    position, size = places(file, logs[1].history.runs[0]).places[1]
    assert file.read_bytes()[position : position + size] == whole[position : position + size]
    assert file.read_bytes()[run.position :][:64] == bytes(64), "swept"


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["first byte", "an entry", "last byte"])
async def test_a_damaged_part_becomes_no_segment(rig: StorageRig, share: float) -> None:
    logs, file = await kept(rig)
    (run,) = logs[0].history.runs
    at = places(file, run).byte_at(round((run.size - 1) * share))
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)
    with pytest.raises(Corrupt, match=f"{file} cannot become part of a segment: .* at byte") as caught:
        await rig.seal(logs[0])
    position = int(caught.value.text.partition("at byte ")[2].partition(":")[0])
    assert at - 26_000 < position <= at
    assert await rig.seal(logs[1]) == [(0, 3)]


async def test_a_damaged_table_and_a_file_cut_short_are_told(rig: StorageRig) -> None:
    logs, file = await kept(rig)
    (first,), (second,) = (log.history.runs for log in logs)
    whole = file.read_bytes()
    data = bytearray(whole)
    data[first.position] ^= 1
    file.write_bytes(data)
    with pytest.raises(Corrupt, match=f"places has a wrong checksum at byte {first.position}"):
        await rig.seal(logs[0])
    file.write_bytes(whole[: second.position + table_bytes(second.places) + 10])
    with pytest.raises(Corrupt, match=f"bytes instead of {second.size}"):
        await rig.seal(logs[1])
    file.write_bytes(whole[: second.position + 5])
    with pytest.raises(Corrupt, match="cut short"):
        await rig.seal(logs[1])
