"""Where entries lie in a journal file: what the writer remembers is what the file says."""

from pathlib import Path

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.names import TopicName
from pydanube.log.entry_places import KEPT_ENTRY_BYTES_MIN, WrittenEntries, entry_places
from pydanube.log.group import decode_group_header

FIRST = Path("/data/journal/00000000000000000001.journal")


def journal_id_of(disk: MemoryDisk) -> int:
    header = decode_group_header(disk.files()[FIRST], 0, None)
    assert header is not None
    return header.journal_id


async def test_what_is_remembered_is_what_the_headers_in_the_file_say(rig, append):
    journal, log = await rig.open_topic()
    other = await journal.open_topic(2, TopicName("default", "other"))
    await append(log, [b"a" * 20_000, b"", b"b" * 100])
    # Cursors ride along: entries that carry no messages.
    log.save_cursor("subscription", 2)
    await append(other, [b"c" * 30_000])
    await append(log, [b"d"])
    written = journal._queue.written
    remembered = written.places(1)
    found = entry_places(rig.disk, FIRST, journal_id=journal_id_of(rig.disk), file_sequence=1)
    assert remembered == found
    assert {topic: sorted(bases) for topic, bases in found.items()} == {1: [0, 1, 2, 3], 2: [0]}


async def test_a_file_is_forgotten_with_its_release(rig, append):
    journal, log = await rig.open_topic()
    await append(log, [b"a" * 20_000])
    written = journal._queue.written
    assert written.places(1) is not None
    await journal.stage_now()
    assert written.places(1) is None


async def test_a_file_of_another_process_has_to_be_read(rig, append):
    _, log = await rig.open_topic()
    await append(log, [b"a" * 20_000])
    journal, _ = await rig.restart()
    assert journal._queue.written.places(1) is None


def test_of_a_file_with_too_many_entries_nothing_is_held():
    written = WrittenEntries(file_bytes=3 * KEPT_ENTRY_BYTES_MIN)
    written.add(7, 64, [], 2)
    assert written.places(7) == {}
    written.add(7, 128, [], 2)
    assert written.places(7) is None
    written.add(7, 192, [], 1)
    assert written.places(7) is None, "the part before it is not known any more"
    written.forget(7)
    written.add(8, 64, [], 3)
    assert written.places(8) == {}
