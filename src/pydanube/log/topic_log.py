"""One topic's face of the journal: dense offsets in, rows out, cursors kept, old history given up."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from pydanube.entries.entry import (
    BODY_BYTES_MAX,
    FLAG_TIMED,
    HEADER_BYTES,
    Kind,
    encode_cursor,
    encode_cursor_drop,
    encode_header,
    encode_producer_drop,
    encode_topic_drop,
    encode_topic_state,
    offset_from_time,
)
from pydanube.history.topic_history import TopicHistory
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.kernel.policies import FsyncPolicy, Retention
from pydanube.log.producers import ProducerMemory
from pydanube.log.retention import expired
from pydanube.log.tail import ENTRY_OVERHEAD_BYTES, Chunk, Row, Tail

if TYPE_CHECKING:
    from pydanube.log.commit import CommitQueue, Done


class OffsetGone(Rejected):
    """The offset was deleted by retention: go on at `start_offset`."""

    def __init__(self, topic_id: int, offset: int, start_offset: int) -> None:
        super().__init__(
            f"offset {offset} of topic {topic_id} was deleted by retention: the oldest one is {start_offset}",
            ErrorCode.ARGUMENT_INVALID,
        )
        self.start_offset = start_offset


class TopicLog:
    """Appends to and reads from one topic. Made by `Journal.open_topic`.

    start_offset ≤ committed_end ≤ next_offset. Offsets from `start_offset` up to `committed_end` can be
    read; those up to `next_offset` are on their way to the disk.
    """

    def __init__(
        self,
        queue: "CommitQueue",
        topic_id: int,
        *,
        epoch: int,
        start_offset: int,
        next_offset: int,
        cursors: dict[str, int],
        tail: Tail,
        producers: ProducerMemory,
        history: TopicHistory,
        fsync: FsyncPolicy,
        on_committed: Callable[[], None],
    ) -> None:
        self.topic_id = topic_id
        self.epoch = epoch
        self.start_offset = start_offset
        self.next_offset = next_offset
        self.committed_end = next_offset
        self.cursors = cursors
        """Offset up to which each subscription has consumed; read only, change by `save_cursor` or `move_cursor`."""
        self.fsync = fsync
        """When an append counts as taken; may be changed at any time."""
        self.on_committed = on_committed
        """Called once per group that held something of this topic, after the `done`s of that group."""
        self.tail = tail
        self.producers = producers
        self.history = history
        self._queue = queue
        self._is_deleted = False

    def append(
        self,
        body: bytes,
        *,
        count: int = 1,
        kind: Kind = Kind.ROW,
        timed: bool = False,
        producer_id: int = 0,
        sequence: int = 0,
        append_ms: int,
        done: "Done",
    ) -> int:
        """Take `count` messages and return the offset of the first.

        Args:
            timed: the messages have a time of delivery or a time to live, so readers are told `append_ms`.
            sequence: that of the first message if the producer is idempotent, and the one that comes next: ask
                `check_sequence` first. 0 if it is not.
            done: called later, in the loop thread, in the order of appends.

        Raises:
            Conflict: the sequence is not the next one (SEQUENCE_GAP); nothing was taken.
            Unavailable: nothing was taken and `done` is never called: too much is waiting (OVERLOADED),
                the disk is full (DISK_FULL), the journal has failed (JOURNAL_STOPPED) or is closing.
        """
        size = HEADER_BYTES + len(body)
        if size > BODY_BYTES_MAX:
            raise Rejected(f"a body of {len(body)} bytes is too large", ErrorCode.MESSAGE_TOO_LARGE)
        queue = self._queue
        if self._is_deleted:
            raise Rejected(f"topic {self.history.topic} was deleted", ErrorCode.TOPIC_UNKNOWN)
        if sequence and sequence != self.producers.last_sequence(producer_id) + 1:
            raise Conflict(
                f"producer {producer_id} appends sequence {sequence}, but {self.sequence_of(producer_id) + 1} is "
                "expected next: ask check_sequence first",
                ErrorCode.SEQUENCE_GAP,
            )
        queue.reserve(size)
        offset = self.next_offset
        head = encode_header(
            kind,
            body,
            count,
            self.topic_id,
            offset,
            producer_id,
            sequence,
            append_ms,
            self.epoch,
            FLAG_TIMED if timed else 0,
        )
        self.next_offset = offset + count
        self.tail.chunk_for(queue.file_sequence, offset).add(offset, count, head, body, append_ms)
        if sequence:
            self.producers.add(producer_id, sequence, count, offset, committed_end=self.committed_end)
        queue.add(self, head, body, memory_bytes=len(body) + ENTRY_OVERHEAD_BYTES, sync=self.fsync, done=done)
        return offset

    def sequence_of(self, producer_id: int) -> int:
        """The last sequence an idempotent producer appended, 0 if it is not known."""
        return self.producers.last_sequence(producer_id)

    def check_sequence(self, producer_id: int, sequence: int, count: int) -> int | None:
        """None if these sequences come next: append them. Else the offset that the first of them got.

        That offset is -1 if it is so long ago that only the fact is known. The messages may still be on their
        way to the disk: answer by `call_when_committed`.

        Raises:
            Conflict: the sequences are neither the next ones nor all appended before (SEQUENCE_GAP).
        """
        if not sequence:
            return None
        return self.producers.check(producer_id, sequence, count, committed_end=self.committed_end)

    def forget_producer(self, producer_id: int) -> None:
        """The producer is gone for good: its next sequence is 1. Written with the next group or soon."""
        if self.producers.forget(producer_id):
            self._queue.add_state(encode_producer_drop(self.topic_id, self.epoch, producer_id))

    def call_when_committed(self, done: "Done") -> None:
        """Call back when everything appended so far is committed, at once if it is; in the order of calls.

        If that group fails, `done` gets the error its appends get.
        """
        self._queue.call_when_committed(self, done)

    def read(self, offset: int, *, messages_max: int, bytes_max: int) -> list[Row] | None:
        """Committed rows from `offset` on that are in memory; None if that one is on disk only.

        An empty list means that there is nothing yet. At least one row comes back otherwise.

        Raises:
            OffsetGone: the offset is below `start_offset`.
        """
        self._check_not_gone(offset)
        return self.tail.read(offset, end=self.committed_end, messages_max=messages_max, bytes_max=bytes_max)

    async def read_cold(
        self, offset: int, *, messages_max: int, bytes_max: int, merged_max: int = 0
    ) -> list[Row]:
        """Committed rows from `offset` on, from wherever they are; checked against their checksums.

        Ends with the run, the segment or the memory it began in, so a long read takes several calls. Out of a
        segment, up to `merged_max` messages that came by themselves are one merged batch.

        Raises:
            OffsetGone: the offset is below `start_offset`.
            Corrupt: a run or segment is missing or damaged, with its place and what is wrong.
            Unavailable: the durable store does not answer.
        """
        rows = self.read(offset, messages_max=messages_max, bytes_max=bytes_max)
        if rows is not None:
            return rows
        try:
            return await self.history.read(
                offset, messages_max=messages_max, bytes_max=bytes_max, merged_max=merged_max
            )
        except DanubeError:
            # Retention may have deleted it while it was being read: then say so instead.
            self._check_not_gone(offset)
            raise

    async def find_time(self, append_ms: int) -> int:
        """The first offset in the order of the log whose entry was appended at that moment or later.

        `next_offset` if there is none. Where the clock stepped back, entries behind the one that is found may have
        been appended before that moment; none in front of it was appended after.

        Raises:
            Corrupt: a run or segment is missing or damaged, with its place and what is wrong.
            Unavailable: the durable store does not answer.
        """
        while (unit := self.history.unit_from_time(append_ms, self.start_offset)) is not None:
            try:
                return max(await self.history.find_time(unit, append_ms), self.start_offset)
            except DanubeError:
                # It may have been given up, or become a segment, while it was being read: then look again.
                if unit.next_offset > self.start_offset and unit in self.history.units:
                    raise
        chunk = self.tail.chunk_from_time(append_ms)
        if chunk is None:
            return self.next_offset
        # A copy: what is not committed may be taken back meanwhile.
        offset = await asyncio.to_thread(offset_from_time, chunk.heads.copy(), append_ms)
        return max(offset, self.start_offset)

    def save_cursor(self, subscription: str, offset: int) -> None:
        """Remember that everything up to `offset` is consumed; written with the next group or soon.

        A cursor never moves back: an older offset changes nothing.
        """
        if offset > self.cursors.get(subscription, -1):
            self.cursors[subscription] = offset
            self._queue.cursor_changed(self, subscription)

    def reset_cursor(self, subscription: str, offset: int) -> None:
        """Set the cursor, also back; -1 for nothing consumed. Written with the next group or soon."""
        if offset < -1:
            raise Rejected(f"cursor {offset} of subscription {subscription}: -1 is the lowest one")
        self.cursors[subscription] = offset
        self._queue.cursor_changed(self, subscription)

    async def move_cursor(self, subscription: str, offset: int) -> None:
        """Set the cursor, also back, and return when that is durable.

        If it cannot be made so, the cursor stays where it was.
        """
        before = self.cursors.get(subscription)
        self.reset_cursor(subscription, offset)
        try:
            await self._queue.write_state(encode_cursor(self.topic_id, self.epoch, subscription, offset))
        except DanubeError:
            if self.cursors.get(subscription) == offset:
                if before is None:
                    self.drop_cursor(subscription)
                else:
                    self.reset_cursor(subscription, before)
            raise

    def drop_cursor(self, subscription: str) -> None:
        """Forget the subscription."""
        if self.cursors.pop(subscription, None) is not None:
            self._queue.add_state(encode_cursor_drop(self.topic_id, self.epoch, subscription))

    async def retain(self, policy: Retention, *, unconsumed_from: int | None, now_ms: int) -> int:
        """Give up runs and segments as the policy says; return how many.

        `unconsumed_from` is the first offset some subscription still waits for, None if there are none. Bytes are
        deleted only after the journal says durably that the topic begins behind them.
        """
        async with self.history.change:
            units = expired(
                self.history.units,
                policy,
                unconsumed_from=unconsumed_from,
                converting_from=self.history.converting_from,
                now_ms=now_ms,
            )
            if not units or self._is_deleted:
                return 0
            self.start_offset = max(self.start_offset, units[-1].next_offset)
            await self._queue.write_state(
                encode_topic_state(
                    self.topic_id, self.epoch, start_offset=self.start_offset, next_offset=self.committed_end
                )
            )
            await self.history.give_up(units)
            return len(units)

    async def drop_copies(self, policy: Retention | None, *, now_ms: int) -> None:
        """Remove runs that are in segments too, as the policy says; all of them if there is none."""
        history = self.history
        async with history.change:
            copies = history.copies
            if policy is not None:
                count = len(expired(copies, policy, unconsumed_from=None, now_ms=now_ms))
                copies = copies[:count]
            await history.drop_copies(copies)

    async def delete(self) -> None:
        """Remove the topic: messages, cursors, history. A deletion cut short is finished later."""
        self._is_deleted = True
        await self.history.begin_deletion()
        self._queue.forget_topic(self)
        self._queue.free(self.tail.clear())
        async with self.history.change:
            await self._queue.write_state(encode_topic_drop(self.topic_id, self.epoch))
            await self.history.finish_deletion()

    async def stage(self, chunk: Chunk, *, created_ms: int) -> bool:
        """Store the chunk as a run; False if the topic was deleted meanwhile."""
        async with self.history.change:
            if self._is_deleted:
                return False
            await self.history.stage(chunk.heads, chunk.bodies, created_ms=created_ms)
            chunk.staged = not self._is_deleted
            return chunk.staged

    def take_back(self) -> int:
        """Forget what was never written; return how many bytes of memory that freed."""
        self.next_offset = self.committed_end
        self.producers.take_back(self.committed_end)
        return self.tail.cut(self.committed_end)

    def _check_not_gone(self, offset: int) -> None:
        if offset < self.start_offset:
            raise OffsetGone(self.topic_id, offset, self.start_offset)
