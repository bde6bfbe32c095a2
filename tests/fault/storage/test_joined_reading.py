"""Readers from any offset and any moment while messages become runs, segments and nothing underneath them."""

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydanube.history.tiering import TieringSettings
from pydanube.kernel.errors import Unavailable
from pydanube.kernel.policies import Retention
from pydanube.log import OffsetGone, TopicLog
from pydanube.protocol import danube_pb2 as pb
from tests.unit.history.storage_rig import StorageRig, append, body, number_of

CHANGES = 60
"""So often something is sealed, staged, swept, given up or made to fail."""
STEP_MS = 1_000
"""Message n is appended at n times this."""
READERS = 4


@dataclass
class Play:
    """One seed: who does what next is thrown, and everything ends after so many changes to what is stored."""

    rig: StorageRig
    log: TopicLog
    dice: random.Random
    is_over: bool = False
    read: int = 0
    gone: int = 0
    sealed: int = 0
    given_up: int = 0

    async def publish(self) -> None:
        number = 0
        while not self.is_over:
            count = self.dice.randint(1, 60)
            groups = [
                append(self.log, body(offset, self.dice.randint(0, 800)), append_ms=offset * STEP_MS)
                for offset in range(number, number + count)
            ]
            assert await asyncio.gather(*groups) == [[None]] * count
            number += count
            await asyncio.sleep(0.005)

    async def store(self) -> None:
        for _ in range(CHANGES):
            do = self.dice.choice(
                (self.seal, self.stage, self.give_up, self.drop_copies, self.sweep, self.fail)
            )
            await do()
            await asyncio.sleep(self.dice.random() * 0.02)
        self.is_over = True

    async def seal(self) -> None:
        try:
            self.sealed += len(await self.rig.tiering.seal(self.log.history))
        except Unavailable as error:
            assert "by a switch" in error.text  # noqa: PT017

    async def stage(self) -> None:
        await self.rig.journal.stage_now()

    async def give_up(self) -> None:
        """Everything but about the last 300 messages, if all of a unit is that old."""
        now_ms = max(self.log.committed_end - 300, 0) * STEP_MS
        policy = Retention(time_minutes=1)
        self.given_up += await self.log.retain(policy, unconsumed_from=None, now_ms=now_ms + 60_000)

    async def drop_copies(self) -> None:
        await self.log.drop_copies(None, now_ms=0)

    async def sweep(self) -> None:
        try:
            # Retention may have left something that the store refused to delete.
            await self.rig.tiering.sweep_now()
        except Unavailable as error:
            assert "by a switch" in error.text  # noqa: PT017

    async def fail(self) -> None:
        self.rig.objects.faults.fail_next = self.dice.randint(0, 2)

    async def follow(self) -> None:
        """From some place on to the end, again and again; at least once after the last message."""
        is_last = False
        while not is_last:
            is_last = self.is_over
            await self.follow_from(await self.begin())
            # At the end of the log nothing above waits for anything.
            await asyncio.sleep(0)

    async def begin(self) -> int:
        offset = self.dice.randint(self.log.start_offset, self.log.committed_end)
        if self.dice.random() < 0.5:
            return offset
        try:
            found = await self.log.find_time(offset * STEP_MS - self.dice.randint(0, STEP_MS - 1))
        except Unavailable:
            return offset
        assert found in (offset, self.log.start_offset) or found >= offset == self.log.committed_end
        return found

    async def follow_from(self, offset: int) -> None:
        while offset < self.log.committed_end:
            try:
                rows = await self.log.read_cold(
                    offset, messages_max=self.dice.randint(1, 300), bytes_max=self.dice.randint(1, 200_000)
                )
            except OffsetGone:
                assert offset < self.log.start_offset
                self.gone += 1
                return
            except Unavailable as error:
                assert "by a switch" in error.text  # noqa: PT017
                continue
            assert rows, "nothing at an offset that is committed"
            assert [row[0] for row in rows] == list(range(offset, offset + len(rows)))
            assert [number_of(row) for row in rows] == list(range(offset, offset + len(rows)))
            assert [row[2] for row in rows] == [row[0] * STEP_MS for row in rows]
            offset += len(rows)
            self.read += len(rows)


@pytest.mark.parametrize("seed", range(2))
async def test_any_offset_and_any_moment_is_read_without_a_gap_and_once(tmp_path: Path, seed: int) -> None:
    rig, dice = StorageRig(tmp_path), random.Random(seed)
    rig.settings = TieringSettings(segment_bytes=40_000, keeps_copies=bool(seed % 2))

    async def some_time(seconds: float) -> None:
        await asyncio.sleep(dice.random() * 0.003)

    (log,) = await rig.open()
    rig.objects.pause, rig.objects.faults.delay_seconds = some_time, 1.0
    play = Play(rig, log, dice)
    try:
        await asyncio.gather(play.publish(), play.store(), *(play.follow() for _ in range(READERS)))
        rig.objects.faults.fail_next = 0
        await rig.tiering.seal(log.history)
        await play.follow_from(log.start_offset)
    finally:
        await rig.close()
    assert play.sealed > 3
    assert play.given_up > 3
    assert play.read > log.committed_end


async def test_readers_far_behind_take_no_more_memory_than_they_may(tmp_path: Path) -> None:
    rig = StorageRig(tmp_path)
    rig.settings = TieringSettings(segment_bytes=8 << 20)
    rig.read_cache_bytes_max = 4 << 20
    dice = random.Random(1)
    (log,) = await rig.open()
    try:
        payload = dice.randbytes(20_000)
        for first in range(0, 2_400, 100):
            await append(log, *(_large(number, payload) for number in range(first, first + 100)), append_ms=7)
        await rig.tiering.seal(log.history)
        stored = sum(segment.payload_bytes for segment in log.history.segments)
        reader = await rig.journal.places.segment_reader()
        most = 0

        async def read_through(start: int) -> None:
            nonlocal most
            offset = start
            while offset < 2_400:
                rows = await log.read_cold(offset, messages_max=50, bytes_max=1 << 20)
                most = max(most, reader.memory_bytes)
                assert rows[0][0] == offset
                offset += len(rows)

        await asyncio.gather(*(read_through(start) for start in (0, 300, 900, 1_700)))
    finally:
        await rig.close()
    group_bytes = 2 * (8 << 20)
    assert stored > 40 << 20
    assert most <= rig.read_cache_bytes_max + 2 * group_bytes


def _large(number: int, payload: bytes) -> bytes:
    """Its own beginning, so that each differs; random, so that it stays as large when compressed."""
    shift = number % len(payload)
    return pb.StreamMessage(
        request_id=number, producer_name="p", payload=payload[shift:] + payload[:shift]
    ).SerializeToString()
