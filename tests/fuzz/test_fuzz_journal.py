"""Recovery over garbage and over mutated journals: Corrupt, or a prefix of what was written; nothing else."""

import asyncio
from functools import cache
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.errors import Corrupt
from pydanube.kernel.names import TopicName
from pydanube.log import Journal, JournalSettings
from pydanube.log.files import JournalDirectory
from pydanube.log.recovery import Recovery, recover
from pydanube.metadata import MemoryStore

DIRECTORY = Path("/data/journal")
FILE_BYTES = 96 * 1024
BODIES = [b"%d:" % number + b"x" * (number * 97 % 2000) for number in range(40)]


class StillClock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


@cache
def journal_files() -> dict[Path, bytes]:
    """A journal of several files, cleanly closed and never staged."""

    async def write() -> dict[Path, bytes]:
        disk = MemoryDisk()
        clock = StillClock()
        journal = await Journal.open(
            DIRECTORY,
            metadata=MemoryStore(clock),
            clock=clock,
            settings=JournalSettings(file_bytes=FILE_BYTES, marker_delay_ms=60_000),
            disk=disk,
        )
        log = await journal.open_topic(1, TopicName("default", "orders"))
        for number, body in enumerate(BODIES):
            committed = asyncio.Event()
            log.append(
                body,
                producer_id=1 + number % 3,
                sequence=1 + number // 3,
                append_ms=1,
                done=lambda error, committed=committed: committed.set(),
            )
            await committed.wait()
            if number % 15 == 14:
                await journal.rotate()
        await journal.close()
        return {path: data for path, data in disk.files().items() if path.stem.isdigit()}

    return asyncio.run(write())


def recovered(files: dict[Path, bytes]) -> Recovery | None:
    disk = MemoryDisk(files)
    try:
        return recover(JournalDirectory(DIRECTORY, disk, file_bytes=FILE_BYTES), disk)
    except Corrupt:
        return None


def bodies(recovery: Recovery) -> list[bytes]:
    return [
        body for topic in recovery.topics.values() for chunk in topic.tail.chunks for body in chunk.bodies
    ]


def sequences(recovery: Recovery) -> list[int]:
    """The last sequence of each of the three producers."""
    topic = recovery.topics.get(1)
    return [0, 0, 0] if topic is None else [topic.producers.last_sequence(number) for number in (1, 2, 3)]


def known_sequences(count: int) -> list[int]:
    return [len(range(number, count, 3)) for number in range(3)]


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.integers(1, 4), st.binary(max_size=20_000), min_size=1))
def test_garbage_is_refused_or_no_journal_at_all(files: dict[int, bytes]) -> None:
    recovery = recovered({DIRECTORY / f"{sequence:020}.journal": data for sequence, data in files.items()})
    assert recovery is None or (recovery.journal_id is None and bodies(recovery) == [])


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_mutated_journal_never_gives_wrong_messages(data: st.DataObject) -> None:
    files = dict(journal_files())
    for _ in range(data.draw(st.integers(1, 4), label="mutations")):
        path = data.draw(st.sampled_from(sorted(files)), label="file")
        content = bytearray(files[path])
        position = data.draw(st.integers(0, len(content)), label="position")
        match data.draw(st.sampled_from(["overwrite", "cut", "move", "insert", "zero", "swap files"])):
            case "overwrite":
                piece = data.draw(st.binary(min_size=1, max_size=64))
                content[position : position + len(piece)] = piece
            case "cut":
                del content[position:]
            case "move":
                source = data.draw(st.integers(0, len(content)), label="source") // 4096 * 4096
                target = position // 4096 * 4096
                content[target : target + 4096] = content[source : source + 4096]
            case "insert":
                content[position:position] = data.draw(st.binary(min_size=1, max_size=64))
            case "zero":
                size = data.draw(st.integers(1, 10_000))
                content[position : position + size] = bytes(len(content[position : position + size]))
            case "swap files":
                other = data.draw(st.sampled_from(sorted(files)), label="other")
                content, files[other] = bytearray(files[other]), bytes(content)
        files[path] = bytes(content)
    recovery = recovered(files)
    assert recovery is None or bodies(recovery) == BODIES[: len(bodies(recovery))]
    assert recovery is None or sequences(recovery) == known_sequences(len(bodies(recovery)))


def test_the_untouched_journal_gives_everything() -> None:
    recovery = recovered(journal_files())
    assert recovery is not None
    assert bodies(recovery) == BODIES
    assert sequences(recovery) == [14, 13, 13]
    assert len(recovery.files) >= 3
