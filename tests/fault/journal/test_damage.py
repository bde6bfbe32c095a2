"""One flipped bit anywhere: refused or harmless, exactly as docs/journal-format.md says; never wrong data."""

import pytest
from crc32c import crc32c

from pydanube.entries.entry import Kind, encode_header, encode_producer, encode_producer_drop
from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.log.group import HEADER_BYTES, bytes_on_disk, decode_group_header, encode_group

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
    journal, log = await workshop.open(stages=False)
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
    _, log = await workshop.open(stages=False)
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
    _, log = await workshop.open(stages=False)
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
    journal, log = await workshop.open(stages=False)
    for producer_id, body in enumerate(BODIES, 1):
        await workshop.append(log, [body], producer_id=producer_id)
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


async def with_group(workshop, entries):
    """A closed journal with one more group, whole and in its place, that holds these entries."""
    journal, log = await workshop.open(stages=False)
    await workshop.append(log, [b"first"], producer_id=7)
    await journal.close()
    data = workshop.disk.files()[workshop.file(1)]
    *_, (last, _, position, _) = groups(data)
    header = decode_group_header(data, last, None)
    parts, size = encode_group(
        entries,
        count=len(entries),
        journal_id=header.journal_id,
        file_sequence=1,
        group_sequence=header.group_sequence + 1,
        synced_group=header.group_sequence,
        position=position,
    )
    return position + HEADER_BYTES, data[:position] + b"".join(parts) + data[position + size :]


def producer_entry(*sent):
    return encode_producer(1, 1, 7, sent)


def producer_entry_with_body(body):
    return encode_header(Kind.PRODUCER, body, 0, 1, 0, 7, 1, 0, 1) + body


def message(sequence):
    return encode_header(Kind.ROW, b"x", 1, 1, 1, 7, sequence, 0, 1) + b"x"


@pytest.mark.parametrize(
    "entry",
    [
        producer_entry_with_body(b""),
        producer_entry_with_body(bytes(23)),
        producer_entry((1, 5, 0), (7, 9, 5)),
        producer_entry((1, 5, 0), (5, 9, 5)),
        producer_entry((1, 5, 3), (6, 9, 3)),
        producer_entry((5, 1, 3)),
        producer_entry((0, 1, 3)),
        message(1),
        message(3),
        encode_producer(99, 1, 7, [(1, 1, 0)]),
        encode_producer_drop(99, 1, 7),
        encode_header(200, b"", 0, 1, 0, 0, 0, 0, 1),
    ],
)
async def test_entries_no_release_would_write_are_named_with_file_and_position(workshop, entry):
    position, data = await with_group(workshop, [entry])
    with pytest.raises(Corrupt, match=f"is damaged at byte {position}:") as caught:
        workshop.recover({workshop.file(1): data})
    assert str(workshop.file(1)) in caught.value.text


async def test_entries_of_producers_that_make_sense_are_taken(workshop):
    entries = [producer_entry((5, 9, 0), (10, 10, 5)), encode_producer(1, 1, 8, [(1, 3, 2)]), message(11)]
    _, data = await with_group(workshop, [*entries, encode_producer_drop(1, 1, 8)])
    producers = workshop.recover({workshop.file(1): data}).topics[1].producers
    assert (producers.last_sequence(7), producers.last_sequence(8)) == (11, 0)
    assert producers.check(7, 8, 1, committed_end=9) == 3


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
    journal, log = await workshop.open(stages=False)
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
