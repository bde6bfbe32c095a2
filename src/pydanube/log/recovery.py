"""Reading a journal back: what is there, what was being written when it ended, what is damaged.

The decision about bytes that are no whole group (`docs/journal-format.md` has every case):

- A file that another one follows was synced to its end before that one was begun. So its groups must
  lead up to the first group of the next file; anything else is damage in the middle: refuse.
- In the last file, a group behind the bad one may say that the bad one had been synced
  (`synced_group`). Then it was acknowledged and is damaged: refuse.
- Otherwise nobody was told that the bad group is durable: a torn tail. Cut it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pydanube.entries.blocks import BLOCK_BYTES
from pydanube.entries.disk import Disk
from pydanube.entries.entry import (
    CARRIES_MESSAGES,
    DamagedEntryError,
    EntryHeader,
    Kind,
    decode_cursor,
    decode_sent,
    decode_start_offset,
    iterate_entries,
)
from pydanube.kernel.errors import Corrupt
from pydanube.log.files import JournalDirectory
from pydanube.log.group import (
    FLAG_SNAPSHOT,
    HEADER_BYTES,
    VERSION,
    GroupHeader,
    body_is_whole,
    bytes_on_disk,
    decode_group_header,
)
from pydanube.log.producers import ProducerMemory, SentEntry
from pydanube.log.tail import Tail

Progress = Callable[[int, int], None]
"""Called with bytes read so far and bytes in all."""


@dataclass(slots=True)
class RecoveredTopic:
    """What the journal knows of one topic."""

    topic_id: int
    epoch: int
    start_offset: int
    next_offset: int
    cursors: dict[str, int] = field(default_factory=dict)
    tail: Tail = field(default_factory=Tail)
    producers: ProducerMemory = field(default_factory=ProducerMemory)


@dataclass(slots=True)
class Recovery:
    """The state to go on from. `journal_id` is None if there was no journal at all."""

    journal_id: int | None = None
    files: list[int] = field(default_factory=list)
    unbegun_files: list[int] = field(default_factory=list)
    position: int = 0
    """Where the next group goes in the last file."""
    group_sequence: int = 1
    """The number of the next group."""
    cut_bytes: int = 0
    topics: dict[int, RecoveredTopic] = field(default_factory=dict)


def recover(directory: JournalDirectory, disk: Disk, progress: Progress | None = None) -> Recovery:
    """Read everything, raise Corrupt if something is damaged; writes nothing."""
    sequences = directory.scan()
    recovery = Recovery(files=sequences)
    if not sequences:
        return recovery
    total = sum(disk.size(directory.path_of(sequence)) for sequence in sequences)
    done = 0
    last: _FileReader | None = None
    for sequence in sequences:
        path = directory.path_of(sequence)
        reader = _FileReader(path, _read(disk, path), sequence, recovery.journal_id)
        done += len(reader.data)
        if progress is not None:
            progress(done, total)
        if not reader.is_begun():
            if sequence != sequences[-1]:
                raise reader.damaged(0, "its first group is damaged, and later files depend on it")
            reader.check_never_begun()
            recovery.unbegun_files.append(sequence)
            break
        if last is None:
            recovery.journal_id, recovery.group_sequence = reader.journal_id, reader.first_group
        elif reader.first_group != recovery.group_sequence:
            # The file before ended too early: its next group is the damaged one.
            raise last.damaged(
                recovery.position,
                f"group {recovery.group_sequence} is damaged or its file is missing, but {path.name} was begun "
                f"after it with group {reader.first_group}",
            )
        _replay(reader, recovery)
        last = reader
    recovery.files = [sequence for sequence in sequences if sequence not in recovery.unbegun_files]
    if last is not None:
        recovery.cut_bytes = last.torn_bytes(recovery.position, recovery.group_sequence)
    return recovery


class _FileReader:
    """One journal file in memory."""

    def __init__(self, path: Path, data: bytes, sequence: int, journal_id: int | None) -> None:
        self.path = path
        self.data = data
        self.sequence = sequence
        first = self._header_of_this_file(0, journal_id)
        self.journal_id = journal_id if first is None else first.journal_id
        self.first_group = 0 if first is None else first.group_sequence
        self._first = first

    def is_begun(self) -> bool:
        """Whether the first group, the snapshot, is whole."""
        return (
            self._first is not None
            and self._first.flags & FLAG_SNAPSHOT != 0
            and body_is_whole(self.data, 0, self._first)
        )

    def check_never_begun(self) -> None:
        """Raise if something follows the first group: it was synced before anything else was written."""
        for position in range(BLOCK_BYTES, len(self.data), BLOCK_BYTES):
            if self._header_of_this_file(position, self.journal_id) is not None:
                raise self.damaged(0, f"its first group is damaged, but a later one is at byte {position}")

    def group_at(self, position: int, group_sequence: int) -> GroupHeader | None:
        """The header of that group if it is there and whole."""
        header = self._header_of_this_file(position, self.journal_id)
        if header is None or header.group_sequence != group_sequence:
            return None
        return header if body_is_whole(self.data, position, header) else None

    def torn_bytes(self, position: int, group_sequence: int) -> int:
        """How many bytes from `position` on belong to groups that were never known to be durable.

        Raises Corrupt if one of them says that the first of them was durable.
        """
        end = position
        for at in range(position, len(self.data), BLOCK_BYTES):
            header = self._header_of_this_file(at, self.journal_id)
            if header is None:
                continue
            if header.synced_group >= group_sequence:
                raise self.damaged(
                    position,
                    f"group {group_sequence} is damaged, but group {header.group_sequence} at byte {at} was "
                    "written after it had been synced",
                )
            end = max(end, at + bytes_on_disk(header.length))
        return min(end, len(self.data)) - position

    def damaged(self, position: int, why: str) -> Corrupt:
        return _damaged(self.path, position, why)

    def _header_of_this_file(self, position: int, journal_id: int | None) -> GroupHeader | None:
        header = decode_group_header(self.data, position, journal_id)
        if header is None or header.file_sequence != self.sequence:
            return None
        if header.version != VERSION:
            raise self.damaged(position, f"format version {header.version} is not known to this release")
        return header


def _replay(reader: _FileReader, recovery: Recovery) -> None:
    """Apply every whole group of the file; leaves `position` at the first one that is not.

    Snapshots of later files count too: a cursor that changed, or a producer that was forgotten, just before a
    rotation may be told there only.
    """
    position = 0
    while (header := reader.group_at(position, recovery.group_sequence)) is not None:
        start = position + HEADER_BYTES
        is_snapshot = header.flags & FLAG_SNAPSHOT != 0
        try:
            for at, entry, head, body in iterate_entries(
                reader.data, start, start + header.length, checked=True
            ):
                if entry.kind in CARRIES_MESSAGES:
                    problem = _apply_messages(recovery.topics, reader.sequence, entry, head, body)
                else:
                    problem = _apply_state(recovery.topics, entry, body, whole=is_snapshot)
                if problem:
                    raise reader.damaged(at, problem)
        except DamagedEntryError as error:
            raise reader.damaged(error.position, error.why) from error
        position += bytes_on_disk(header.length)
        recovery.group_sequence += 1
    recovery.position = position


def _apply_messages(
    topics: dict[int, RecoveredTopic], file_sequence: int, entry: EntryHeader, head: bytes, body: bytes
) -> str | None:
    """Take the entry into its topic; return what is wrong with it, if anything."""
    topic = topics.get(entry.topic_id)
    if topic is None:
        return f"a message of topic {entry.topic_id}, which was never opened"
    offset = topic.next_offset
    if entry.base_offset != offset or entry.messages == 0:
        return f"topic {entry.topic_id} continues with offset {entry.base_offset}, not {offset}"
    if entry.sequence:
        expected = topic.producers.last_sequence(entry.producer_id) + 1
        if entry.sequence != expected:
            return (
                f"producer {entry.producer_id} of topic {entry.topic_id} continues with sequence "
                f"{entry.sequence}, not {expected}"
            )
        topic.producers.add(entry.producer_id, entry.sequence, entry.messages, offset, committed_end=offset)
    chunk = topic.tail.chunk_for(file_sequence, offset)
    chunk.add(offset, entry.messages, head, body, entry.append_ms)
    topic.next_offset += entry.messages
    return None


def _apply_state(
    topics: dict[int, RecoveredTopic], entry: EntryHeader, body: bytes, *, whole: bool
) -> str | None:
    """Change the state as the entry says; return what is wrong with it, if anything.

    `whole` says that everything about the topic follows, so that what is known counts no more.
    """
    topic = topics.get(entry.topic_id)
    match entry.kind:
        case Kind.TOPIC_STATE:
            start_offset = decode_start_offset(body)
            if topic is None:
                topics[entry.topic_id] = RecoveredTopic(
                    entry.topic_id, entry.epoch, start_offset, entry.base_offset
                )
                return None
            topic.epoch = entry.epoch
            topic.start_offset = max(topic.start_offset, start_offset)
            if whole:
                topic.cursors.clear()
                topic.producers.clear()
        case Kind.TOPIC_DROP:
            topics.pop(entry.topic_id, None)
        case Kind.CURSOR | Kind.CURSOR_DROP | Kind.PRODUCER | Kind.PRODUCER_DROP if topic is None:
            return f"a cursor or producer of topic {entry.topic_id}, which was never opened"
        case Kind.CURSOR if topic is not None:
            topic.cursors[body.decode()] = decode_cursor(entry.base_offset)
        case Kind.CURSOR_DROP if topic is not None:
            topic.cursors.pop(body.decode(), None)
        case Kind.PRODUCER if topic is not None:
            try:
                topic.producers.replace(entry.producer_id, map(SentEntry._make, decode_sent(body)))
            except ValueError as error:
                return f"producer {entry.producer_id} of topic {entry.topic_id} has no memory: {error}"
        case Kind.PRODUCER_DROP if topic is not None:
            topic.producers.forget(entry.producer_id)
        case _:
            return f"entry kind {entry.kind} is not known to this release"
    return None


def _read(disk: Disk, path: Path) -> bytes:
    try:
        return disk.read(path)
    except OSError as error:
        raise Corrupt(
            f"journal file {path} cannot be read: {error.strerror or error}. Nothing was changed; repair the disk or "
            "restore the file from a copy"
        ) from error


def _damaged(path: Path, position: int, why: str) -> Corrupt:
    return Corrupt(
        f"journal file {path} is damaged at byte {position}: {why}. Nothing was changed; keep the file, restore it "
        "from a copy, or move the data directory away to start without its messages"
    )
