"""Killed, or the power cut, before every single call to the disk or the metadata store.

One story (appends, rotations, staging, cursors, producers, retention, a deletion) is told once per step it has,
each time ending there. Whatever had been acknowledged must be there afterwards, and the next broker must
be able to go on.
"""

import asyncio
import random
from contextlib import suppress

import pytest

from pydanube.entries import bundle
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import Retention
from pydanube.log.staging import BUNDLED_TOPICS_MIN
from pydanube.metadata import MemoryStore

OTHER = TopicName("default", "payments")
CROWD = [TopicName("default", f"crowd-{number}") for number in range(BUNDLED_TOPICS_MIN - 2)]
"""With them runs share files."""


class DeathError(OSError):
    """The process ends here."""


class MortalStore(MemoryStore):
    """A metadata store that counts as a step too."""

    step = staticmethod(lambda call, path: None)

    async def put(self, key, value, **options):
        self._count("put")
        return await super().put(key, value, **options)

    async def delete(self, key, **options):
        self._count("delete")
        return await super().delete(key, **options)

    async def transact(self, compares, writes):
        self._count("transact")
        return await super().transact(compares, writes)

    def _count(self, call):
        try:
            self.step(call, None)
        except DeathError as death:
            raise DanubeError("the metadata store is gone") from death


class Story:
    """What was promised so far."""

    def __init__(self, crowd=(), padding=b""):
        self.crowd = crowd
        self.padding = padding
        self.acknowledged = []
        self.cursor = 0
        self.moved_to = None
        self.forgotten = False
        self.start = 0
        self.deleted = False
        self.deleting = False

    async def tell(self, workshop, steps):
        workshop.disk.before = workshop.metadata.step = steps
        journal, log = await workshop.open()
        other = await journal.open_topic(2, OTHER)
        crowd = [await journal.open_topic(number, name) for number, name in enumerate(self.crowd, 3)]
        for round_ in range(3):
            for number in range(2):
                body = b"%d.%d" % (round_, number) + self.padding
                await self.append(workshop, log, body)
                await workshop.append(other, [body])
            for each in crowd:
                await workshop.append(each, [b"%d" % round_])
            log.save_cursor("billing", log.committed_end)
            await journal.stage_now()
            self.cursor = log.committed_end
        self.moved_to = {1, self.cursor}
        await log.move_cursor("billing", 1)
        self.moved_to = {1}
        await self.append(workshop, log, b"gone", producer_id=8)
        log.forget_producer(8)
        await journal.rotate()
        self.forgotten = True
        self.start = -1
        await log.retain(Retention(until_consumed=True), unconsumed_from=3, now_ms=0)
        self.start = 2
        self.deleting = True
        await other.delete()
        self.deleted = True
        await self.append(workshop, log, b"last")
        await journal.close()

    async def append(self, workshop, log, body, producer_id=7):
        told = await workshop.append(log, [body], producer_id=producer_id)
        if told != [None]:
            raise DeathError("not acknowledged")
        self.acknowledged.append(body)


def count_steps_until(limit):
    """A hook that lets `limit` steps happen and none after."""
    count = 0

    def step(call, path):
        nonlocal count
        count += 1
        if count > limit:
            raise DeathError(f"before step {count}: {call}")

    return step, lambda: count


async def check(workshop, story):
    journal, log = await workshop.open()
    rows = await workshop.rows(log)
    known = [b"%d.%d" % (round_, number) + story.padding for round_ in range(3) for number in range(2)]
    known += [b"gone", b"last"]
    assert log.committed_end >= len(story.acknowledged)
    assert rows == list(enumerate(known))[log.start_offset : log.committed_end]
    if story.start >= 0:
        assert log.start_offset == story.start
    else:
        assert log.start_offset in {0, 2}
    if story.moved_to:
        assert log.cursors["billing"] in story.moved_to
    else:
        assert log.cursors.get("billing", 0) >= story.cursor
    check_producers(log, story)
    if story.deleted:
        assert 2 not in journal.recovered
    # Life goes on: another message, another stage, another start.
    offset = log.committed_end
    assert await workshop.append(log, [b"after"], producer_id=7) == [None]
    await journal.stage_now()
    await journal.close()
    workshop.swap(workshop.disk.files())
    journal, log = await workshop.open()
    assert (await workshop.rows(log))[-1] == (offset, b"after")
    assert log.check_sequence(7, log.sequence_of(7), 1) == offset
    await journal.close()


def check_producers(log, story):
    """Every message that is there is known by its sequence, no other one is."""
    offsets = [*range(min(log.committed_end, 6)), *range(7, log.committed_end)]
    answers = [log.check_sequence(7, sequence, 1) for sequence in range(1, len(offsets) + 2)]
    assert answers == [*offsets, None]
    if story.forgotten:
        assert log.sequence_of(8) == 0
    else:
        assert log.sequence_of(8) <= max(0, log.committed_end - 6)


async def steps_of_the_story(make, crowd, padding):
    workshop = make()
    step, counted = count_steps_until(10**9)
    await Story(crowd, padding).tell(workshop, step)
    return counted()


@pytest.fixture
def make(workshop):
    made = []

    def make():
        new = type(workshop)()
        new.metadata = MortalStore(workshop.clock)
        # Neither markers nor cursors by time: the story has the same steps each time it is told.
        new.settings = type(new.settings)(
            file_bytes=256 * 1024, marker_delay_ms=600_000, cursor_delay_ms_max=600_000, cache_bytes_max=0
        )
        made.append(new)
        return new

    return make


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("power", ["stays", "goes"])
@pytest.mark.parametrize(
    ("crowd", "padding"),
    [((), b""), (CROWD, b""), ((), bytes(40_000))],
    ids=["two topics", "a crowd", "kept files"],
)
async def test_an_end_at_any_step_loses_nothing_acknowledged(  # noqa: PLR0917
    make, part, power, crowd, padding, monkeypatch
):
    if padding:
        # One topic after the other gets its run in a kept file, so that an end may come in between.
        monkeypatch.setattr(bundle, "RUNS_MAX", 1)
    total = await steps_of_the_story(make, crowd, padding)
    assert total > 60
    for limit in range(part, total, 8):
        workshop, story = make(), Story(crowd, padding)
        step, _ = count_steps_until(limit)
        with suppress(DeathError, DanubeError, asyncio.CancelledError):
            await story.tell(workshop, step)
        for journal in workshop.journals:
            await journal.close()
        dice = random.Random(limit)
        lost = (lambda: False) if limit % 3 == 0 else (lambda dice=dice: dice.random() < 0.5)
        files = workshop.disk.files() if power == "stays" else workshop.disk.after_power_loss(lost)
        workshop.swap(files)
        workshop.metadata.step = lambda call, path: None
        try:
            await check(workshop, story)
        except BaseException as error:
            error.add_note(f"ended before step {limit + 1} of {total}")
            raise
