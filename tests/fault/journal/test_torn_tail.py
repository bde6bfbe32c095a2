"""A group that was being written when the power went: cut it, keep everything before it."""

import random

import pytest

from pydanube.entries.memory_disk import SECTOR_BYTES
from pydanube.kernel.policies import FsyncPolicy
from pydanube.log.group import HEADER_BYTES, decode_group_header

# Drawn from a seed: a byte that happens to be what was torn off would make the group whole again.
RECYCLED = [b"\0" * 4096, random.Random(7).randbytes(4096), b"DJGR" * 1024]


async def before_and_after(workshop, first, second):
    """The file with the first group only, with both, and where the second one begins and ends."""
    _, log = await workshop.open(stages=False)
    await workshop.append(log, first)
    before = workshop.disk.files()[workshop.file(1)]
    await workshop.append(log, second)
    after = workshop.disk.files()[workshop.file(1)]
    position = next(
        at for at in range(0, len(after), 4096) if before[at : at + 4096] != after[at : at + 4096]
    )
    # A marker may have been written between the two.
    header = decode_group_header(after, position, None)
    while header.flags:
        position += 4096
        header = decode_group_header(after, position, None)
    return before, after, position, position + HEADER_BYTES + header.length


async def test_cut_at_every_byte_of_the_last_group(workshop, bodies_of):
    before, after, start, end = await before_and_after(workshop, [b"kept"], [b"torn" * 20])
    for cut in range(start, end):
        for stale in RECYCLED:
            data = after[:cut] + (stale * 8)[cut % 4096 :][: 3 * 4096] + before[cut + 3 * 4096 :]
            recovery = workshop.recover({workshop.file(1): data})
            assert bodies_of(recovery) == [b"kept"]
            assert recovery.position == start
    assert bodies_of(workshop.recover({workshop.file(1): after[:end] + before[end:]})) == [
        b"kept",
        b"torn" * 20,
    ]


@pytest.mark.parametrize("seed", range(40))
async def test_any_sectors_of_a_large_group_lost(workshop, bodies_of, seed):
    dice = random.Random(seed)
    second = [dice.randbytes(dice.randrange(3000)) for _ in range(20)]
    _, after, start, end = await before_and_after(workshop, [b"kept"], second)
    sectors = list(range(start, end, SECTOR_BYTES))
    recycled = dice.choice(RECYCLED)
    for lost in [[sector] for sector in sectors] + [
        dice.sample(sectors, dice.randint(1, len(sectors))) for _ in range(50)
    ]:
        data = bytearray(after)
        for sector in lost:
            data[sector : sector + SECTOR_BYTES] = recycled[sector % 4096 :][:SECTOR_BYTES]
        assert bodies_of(workshop.recover({workshop.file(1): bytes(data)})) == [b"kept"]


async def test_stale_groups_of_a_recycled_file_are_never_taken_for_new(workshop, bodies_of):
    journal, log = await workshop.open()
    for round_ in range(5):
        for _ in range(5):
            await workshop.append(log, [b"%d" % round_ * 100] * 30)
        await journal.stage_now()
    await workshop.append(log, [b"new"])
    files = workshop.disk.files()
    current, _prepared = sorted(
        path for path in files if path.parent == workshop.journal_path and path.stem.isdigit()
    )
    stale = sum(
        decode_group_header(files[current], at, None) is not None
        for at in range(0, len(files[current]), 4096)
    )
    assert stale > 2, "the file was recycled and still holds old groups"
    assert bodies_of(workshop.recover({current: files[current]})) == [b"new"]


async def test_the_cut_is_durable_and_the_next_group_takes_the_place(workshop, caplog):
    _, after, start, end = await before_and_after(workshop, [b"kept"], [b"torn" * 2000])
    damaged = bytearray(after)
    damaged[end - 1] ^= 1
    workshop.swap({workshop.file(1): bytes(damaged)})
    _, log = await workshop.open()
    assert await workshop.rows(log) == [(0, b"kept")]
    assert f"position={start} bytes={12288 if end - start > 8192 else 8192}" in caplog.text
    await workshop.append(log, [b"x"])
    left = workshop.disk.after_power_loss(lambda: False)
    workshop.swap(left)
    _, log = await workshop.open()
    assert await workshop.rows(log) == [(0, b"kept"), (1, b"x")]


async def test_unsynced_groups_behind_a_lost_one_go_with_it(workshop, bodies_of):
    """Two groups written, none synced: the second one reached the disk, the first did not."""
    _, log = await workshop.open(stages=False)
    await workshop.append(log, [b"kept"])
    log.fsync = FsyncPolicy.NEVER
    before = workshop.disk.files()[workshop.file(1)]
    await workshop.append(log, [b"lost"])
    await workshop.append(log, [b"orphan"])
    after = bytearray(workshop.disk.files()[workshop.file(1)])
    start = next(
        at
        for at in range(0, len(after), 4096)
        if before[at : at + 4096] != after[at : at + 4096] and b"lost" in after[at : at + 4096]
    )
    after[start : start + 4096] = before[start : start + 4096]
    recovery = workshop.recover({workshop.file(1): bytes(after)})
    assert bodies_of(recovery) == [b"kept"]
    assert recovery.cut_bytes == 8192


async def test_bytes_a_client_sent_never_pass_for_a_group(workshop, bodies_of):
    """A body that holds a copy of a group of this very journal, on a block boundary, behind a torn header."""
    _, log = await workshop.open(stages=False)
    await workshop.append(log, [b"kept"])
    data = workshop.disk.files()[workshop.file(1)]
    copy = next(
        data[at : at + 4096] for at in range(4096, len(data), 4096) if b"kept" in data[at : at + 4096]
    )
    await workshop.append(log, [b"a" * 3968 + copy + copy])
    after = bytearray(workshop.disk.files()[workshop.file(1)])
    start = after.index(b"a" * 3968) - 128
    after[start : start + SECTOR_BYTES] = bytes(SECTOR_BYTES)
    assert bodies_of(workshop.recover({workshop.file(1): bytes(after)})) == [b"kept"]


async def test_a_file_is_durable_to_its_end_before_the_next_one_is_begun(workshop):
    """Otherwise a power cut would leave a hole in the middle, where nothing may be cut."""
    journal, log = await workshop.open(stages=False)
    log.fsync = FsyncPolicy.NEVER
    await workshop.append(log, [b"lazy"])
    await journal.rotate()
    workshop.swap(workshop.disk.after_power_loss(lambda: False))
    _, log = await workshop.open()
    assert await workshop.rows(log) == [(0, b"lazy")]


async def test_what_was_cut_does_not_come_back_behind_the_next_group(workshop):
    _, log = await workshop.open(stages=False)
    await workshop.append(log, [b"kept"])
    log.fsync = FsyncPolicy.NEVER
    await workshop.append(log, [b"lost"])
    await workshop.append(log, [b"orphan"])
    data = bytearray(workshop.disk.files()[workshop.file(1)])
    start = data.index(b"lost") // 4096 * 4096
    data[start : start + 4096] = bytes(4096)
    workshop.swap({workshop.file(1): bytes(data)})
    _, log = await workshop.open(stages=False)
    await workshop.append(log, [b"next"])
    workshop.swap(workshop.disk.files())
    _, log = await workshop.open()
    assert await workshop.rows(log) == [(0, b"kept"), (1, b"next")]


async def test_what_a_killed_process_left_in_the_page_cache_is_synced_before_it_counts(workshop):
    journal, log = await workshop.open(stages=False)
    log.fsync = FsyncPolicy.NEVER
    await workshop.append(log, [b"lazy"])

    def killed(call, path):
        raise OSError("this process was killed")

    workshop.disk.before = killed
    await journal.close()
    workshop.disk.before = lambda call, path: None
    _, log = await workshop.open(stages=False)
    await workshop.append(log, [b"strict"])
    workshop.swap(workshop.disk.after_power_loss(lambda: False))
    _, log = await workshop.open()
    assert await workshop.rows(log) == [(0, b"lazy"), (1, b"strict")]
