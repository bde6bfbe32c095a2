"""One flipped bit anywhere: refused or harmless, exactly as docs/journal-format.md says; never wrong data."""

import pytest
from crc32c import crc32c

from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.log.group import HEADER_BYTES, bytes_on_disk, decode_group_header

BODIES = [b"first", b"second" * 10, b"third"]


def groups(data):
    """(position, end of its content, end of its blocks, is a marker) of each group in the file."""
    position = 0
    while (header := decode_group_header(data, position, None)) is not None:
        size = bytes_on_disk(header.length)
        yield (
            position,
            position + HEADER_BYTES + header.length,
            position + size,
            header.length == 0 and position > 0,
        )
        position += size


def flips(data, start, end, every=1):
    for position in range(start, end, every):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        yield position, bytes(damaged)


async def closed_journal(workshop):
    journal, log = await workshop.open(seals=False)
    for body in BODIES:
        await workshop.append(log, [body])
    await journal.close()
    return workshop.disk.files()[workshop.file(1)]


async def test_after_a_clean_close_every_byte_that_counts_is_watched(workshop):
    data = await closed_journal(workshop)
    content = [(start, end) for start, end, _, marker in groups(data) if not marker]
    assert len(content) == 1 + len(BODIES)
    for start, end in content:
        for position, damaged in flips(data, start, end):
            with pytest.raises(Corrupt) as caught:
                workshop.recover({workshop.file(1): damaged})
            assert caught.value.code is ErrorCode.JOURNAL_CORRUPT
            assert str(workshop.file(1)) in caught.value.text
            assert f"at byte {start}:" in caught.value.text, position


async def test_padding_and_the_last_marker_carry_nothing(workshop, bodies_of):
    data = await closed_journal(workshop)
    found = list(groups(data))
    harmless = [(end, block_end) for _, end, block_end, _ in found]
    harmless.append((found[-1][0], found[-1][1]))
    harmless.append((found[-1][2], found[-1][2] + 4096))
    for start, end in harmless:
        for position, damaged in flips(data, start, end, every=61):
            assert bodies_of(workshop.recover({workshop.file(1): damaged})) == BODIES, position


async def test_of_a_killed_journal_only_the_last_group_may_be_cut(workshop, bodies_of):
    workshop.settings = type(workshop.settings)(file_bytes=256 * 1024, marker_delay_ms=600_000)
    _, log = await workshop.open(seals=False)
    for body in BODIES:
        await workshop.append(log, [body])
    data = workshop.disk.files()[workshop.file(1)]
    found = list(groups(data))
    for start, end, _, _ in found[:-1]:
        for _, damaged in flips(data, start, end):
            with pytest.raises(Corrupt):
                workshop.recover({workshop.file(1): damaged})
    start, end, _, _ = found[-1]
    for _, damaged in flips(data, start, end):
        assert bodies_of(workshop.recover({workshop.file(1): damaged})) == BODIES[:-1]


async def test_an_idle_journal_writes_a_marker_that_guards_its_last_group(workshop, bodies_of):
    workshop.settings = type(workshop.settings)(file_bytes=256 * 1024, marker_delay_ms=0)
    _, log = await workshop.open(seals=False)
    for body in BODIES:
        await workshop.append(log, [body])
    while not (found := list(groups(workshop.disk.files()[workshop.file(1)])))[-1][3]:
        await workshop.append(log, [b"more"])
    data = workshop.disk.files()[workshop.file(1)]
    start, end, _, _ = found[-2]
    for _, damaged in flips(data, start, end):
        with pytest.raises(Corrupt):
            workshop.recover({workshop.file(1): damaged})


async def three_files(workshop):
    journal, log = await workshop.open(seals=False)
    for body in BODIES:
        await workshop.append(log, [body])
        if body is not BODIES[-1]:
            await journal.rotate()
    return workshop.disk.files()


async def test_a_file_that_another_follows_is_watched_to_its_end(workshop):
    files = await three_files(workshop)
    for sequence in (1, 2):
        data = files[workshop.file(sequence)]
        for start, end, _, _ in groups(data):
            for _, damaged in flips(data, start, end):
                with pytest.raises(Corrupt):
                    workshop.recover({**files, workshop.file(sequence): damaged})


async def test_a_file_missing_from_the_middle_is_missed(workshop):
    files = await three_files(workshop)
    del files[workshop.file(2)]
    with pytest.raises(Corrupt, match="missing"):
        workshop.recover(files)


async def test_a_last_file_that_was_never_begun_is_ignored(workshop, bodies_of):
    files = await three_files(workshop)
    stale = files[workshop.file(1)]
    recovery = workshop.recover({**files, workshop.file(4): stale})
    assert bodies_of(recovery) == BODIES
    assert (recovery.files, recovery.unbegun_files) == ([1, 2, 3], [4])


async def test_a_torn_first_group_of_the_last_file_falls_back_to_the_file_before(workshop, bodies_of):
    journal, log = await workshop.open(seals=False)
    await workshop.append(log, BODIES)
    await journal.rotate()
    files = workshop.disk.files()
    data = files[workshop.file(2)]
    start, end, _, _ = next(groups(data))
    for _, damaged in flips(data, start, end):
        recovery = workshop.recover({**files, workshop.file(2): damaged})
        assert bodies_of(recovery) == BODIES
        assert recovery.unbegun_files == [2]


async def test_a_later_format_is_named_instead_of_being_cut(workshop):
    data = bytearray(await closed_journal(workshop))
    start, _, _, _ = list(groups(bytes(data)))[2]
    data[start + 4] = 9
    data[start + 60 : start + 64] = crc32c(bytes(data[start : start + 60])).to_bytes(4, "little")
    with pytest.raises(Corrupt, match="format version 9 is not known"):
        workshop.recover({workshop.file(1): bytes(data)})


async def test_a_refused_journal_is_left_as_it_is(workshop):
    data = await closed_journal(workshop)
    damaged = bytearray(data)
    damaged[list(groups(data))[1][0] + 70] ^= 1
    workshop.swap({workshop.file(1): bytes(damaged)})
    with pytest.raises(Corrupt):
        await workshop.open()
    assert workshop.disk.files()[workshop.file(1)] == bytes(damaged)
