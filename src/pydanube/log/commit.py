"""Group commit as the event loop sees it: hand over, complete, rotate, stop.

Everything here runs in the loop thread; files are touched by the writer thread and by worker threads
only. Per message it costs a header, a checksum and a few list appends; per loop tick one hand-over to
the writer; per group one call back into the loop.

    append ─▶ pending ──(once per tick)──▶ outstanding ──(writer thread)──▶ committed ─▶ done(None)

Order: offsets are given out in the order of appends, hand-overs are written in their order, and `done`
is called in the order of appends. So the place on disk follows the offset.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from pydanube.entries.blocks import BLOCK_BYTES
from pydanube.entries.entry import encode_cursor, encode_topic_state
from pydanube.kernel.errors import DanubeError, ErrorCode, OutcomeUnknown, Unavailable
from pydanube.kernel.policies import FsyncPolicy
from pydanube.log.entry_places import WrittenEntries
from pydanube.log.group import HEADER_BYTES, bytes_on_disk
from pydanube.log.recovery import RecoveredTopic
from pydanube.log.settings import JournalSettings
from pydanube.log.snapshot import Snapshot, TopicFacts
from pydanube.log.stats import WriterStats
from pydanube.log.writer import Close, JournalWriter, Rotate

if TYPE_CHECKING:
    from pydanube.log.topic_log import TopicLog

logger = logging.getLogger("pydanube.log")

Done = Callable[[DanubeError | None], None]
"""Told once what became of an append: None when it is as durable as its topic's policy asks."""

RESERVE_BYTES = 16 * BLOCK_BYTES
"""Room at the end of a file for what must work on a full disk: giving up history, and closing."""

HANDED_OVER_BYTES = 1 << 20
"""So much is worth a write of its own: it does not wait for the end of the tick, in which one client may send much more."""

_SLACK_BYTES = 2 * BLOCK_BYTES
"""A marker and the padding that may come with the next hand-over."""


class PendingBatch:
    """Entries collected in one loop tick."""

    __slots__ = (
        "buffers",
        "bytes",
        "count",
        "dones",
        "ends",
        "file_sequence",
        "is_urgent",
        "sync",
        "sync_soon",
    )

    def __init__(self, file_sequence: int) -> None:
        self.file_sequence = file_sequence
        self.buffers: list[bytes] = []
        self.bytes = 0
        self.count = 0
        self.dones: list[Done] = []
        self.ends: dict[TopicLog, int] = {}
        self.sync = False
        self.sync_soon = False
        self.is_urgent = False

    @property
    def disk_bytes_max(self) -> int:
        """What the batch takes at most: alone in a group, behind a marker."""
        return bytes_on_disk(self.bytes) + BLOCK_BYTES


class CommitQueue:
    """What lies between the topics of a broker and its one writer thread."""

    def __init__(
        self,
        settings: JournalSettings,
        *,
        loop: asyncio.AbstractEventLoop,
        file_sequence: int,
        position: int,
        closed_files: list[int],
        recovered: dict[int, RecoveredTopic],
    ) -> None:
        self.settings = settings
        self.loop = loop
        self.logs: dict[int, TopicLog] = {}
        self.recovered = recovered
        """Topics found on disk and not opened yet, by id."""
        self.file_sequence = file_sequence
        """The file that what is appended now goes to."""
        self.closed_files: deque[int] = deque(closed_files)
        """Full files whose messages are not all in runs yet, oldest first."""
        self.written = WrittenEntries(file_bytes=settings.file_bytes)
        """Where entries are in files that this process has written."""
        self.unstaged_bytes = sum(
            chunk.memory_bytes for topic in recovered.values() for chunk in topic.tail.chunks
        )
        self.on_rotated: Callable[[], None] = _nothing
        """Called when a file was added to `closed_files`."""
        self.on_roomy: Callable[[], None] = _nothing
        """Called when something was staged and it is not crowded any more."""
        self.after_commit: Callable[[], None] = _nothing
        """Called when everybody has been told of a group: the answers may be written at once."""
        self._writer: JournalWriter | None = None
        self._position = position
        self._pending = PendingBatch(file_sequence)
        self._outstanding: deque[PendingBatch] = deque()
        self._outstanding_disk_bytes = 0
        self._being_told: list[Done] | None = None
        """The last callbacks of the group that was committed, while they are called."""
        self.open_file_bytes = sum(
            chunk.memory_bytes
            for topic in recovered.values()
            for chunk in topic.tail.chunks
            if chunk.file_sequence == file_sequence
        )
        """Memory held by what is in the file in use."""
        self._begun_position = 0
        self._reserve_bytes = RESERVE_BYTES // 2
        self._dirty_cursors: dict[tuple[TopicLog, str], None] = {}
        self._cursor_timer: asyncio.TimerHandle | None = None
        self._space_timer: asyncio.TimerHandle | None = None
        self._hand_over_scheduled = False
        self._slowed: asyncio.TimerHandle | None = None
        self._slow_from_bytes = settings.unstaged_bytes_max * 3 // 4
        self._refusal: DanubeError | None = None
        self._held: Unavailable | None = None
        self._unstaged_bytes_max = settings.unstaged_bytes_max
        self._rotations: deque[asyncio.Future[None]] = deque()
        self._ended: asyncio.Future[None] = loop.create_future()
        self._room = 0
        self._measure_room()

    def start(self, writer: JournalWriter) -> None:
        self._writer = writer
        writer.start()

    @property
    def refusal(self) -> DanubeError | None:
        """Why appends are refused at the moment, or None."""
        return self._refusal

    @property
    def stats(self) -> WriterStats:
        """What the writer has counted since this process opened the journal."""
        return WriterStats() if self._writer is None else self._writer.stats

    def hold(self, reason: Unavailable | None) -> None:
        """Refuse appends for a reason that lies elsewhere; None lets them in again."""
        self._held = reason
        # Nothing fits: so what is asked of every append stays one comparison.
        self._unstaged_bytes_max = self.settings.unstaged_bytes_max if reason is None else -1

    # Appending: called by TopicLog.

    def reserve(self, size: int) -> None:
        """Make sure that an entry of `size` bytes may be added now: refuse, or begin a new file first."""
        if self._refusal is not None:
            raise _copy(self._refusal)
        if self.unstaged_bytes > self._unstaged_bytes_max:
            if self._held is not None:
                raise _copy(self._held)
            raise Unavailable(
                f"{self.unstaged_bytes} bytes wait to be moved from the journal into runs, more than "
                f"unstaged_bytes_max = {self.settings.unstaged_bytes_max}: try again shortly",
                ErrorCode.OVERLOADED,
            )
        if size > self._room:
            self._rotate_if_used()

    def add(
        self, log: "TopicLog", head: bytes, body: bytes, *, memory_bytes: int, sync: FsyncPolicy, done: Done
    ) -> None:
        """Take one entry whose room was reserved."""
        pending = self._pending
        pending.buffers.append(head)
        pending.buffers.append(body)
        pending.count += 1
        pending.dones.append(done)
        pending.ends[log] = log.next_offset
        size = len(head) + len(body)
        pending.bytes += size
        self._room -= size
        self.unstaged_bytes += memory_bytes
        self.open_file_bytes += memory_bytes
        if sync is FsyncPolicy.ALWAYS:
            pending.sync = True
        elif sync is FsyncPolicy.INTERVAL:
            pending.sync_soon = True
        if pending.bytes >= HANDED_OVER_BYTES:
            self._hand_over_in_turn()
        elif not self._hand_over_scheduled:
            self._hand_over_scheduled = True
            self.loop.call_soon(self._hand_over_in_turn)

    def add_state(self, entry: bytes, done: Done | None = None) -> None:
        """Take a state entry. With `done` it is made durable, without it rides with the next group."""
        if self._refusal is not None:
            # The next file's snapshot will hold it. Who waits for it may use the reserve: giving up old
            # history is what frees a full disk.
            if done is not None and not self._use_reserve(entry, done):
                done(_copy(self._refusal))
            return
        if len(entry) > self._room:
            self._rotate_if_used()
        self._pending.buffers.append(entry)
        self._pending.count += 1
        self._pending.bytes += len(entry)
        self._pending.sync_soon = True
        self._room -= len(entry)
        if done is not None:
            self._pending.dones.append(done)
            self._pending.sync = True
            if not self._hand_over_scheduled:
                self._hand_over_scheduled = True
                self.loop.call_soon(self._hand_over_in_turn)
        else:
            self._schedule_lazy_hand_over()

    async def write_state(self, entry: bytes) -> None:
        """Take a state entry and return when it is durable."""
        written: asyncio.Future[None] = self.loop.create_future()

        def done(error: DanubeError | None) -> None:
            if written.done():
                return
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

        self.add_state(entry, done)
        await written

    def _use_reserve(self, entry: bytes, done: Done) -> bool:
        if self._refusal is None or self._refusal.code is not ErrorCode.DISK_FULL or self._writer is None:
            return False
        size = bytes_on_disk(len(entry)) + BLOCK_BYTES
        if size > self._reserve_bytes:
            return False
        self._reserve_bytes -= size
        batch = PendingBatch(self.file_sequence)
        batch.is_urgent = batch.sync = True
        batch.buffers.append(entry)
        batch.bytes, batch.count = len(entry), 1
        batch.dones.append(done)
        self._outstanding.append(batch)
        self._writer.put(batch)
        return True

    def call_when_committed(self, log: "TopicLog", done: Done) -> None:
        """Tell `done` together with the topic's last append, behind it; at once if nothing is on its way."""
        if log in self._pending.ends:
            self._pending.dones.append(done)
            return
        for batch in reversed(self._outstanding):
            if log in batch.ends:
                batch.dones.append(done)
                return
        if self._being_told is not None:
            # Somebody who is being told asks: those before him in the same group come first.
            self._being_told.append(done)
        else:
            done(None)

    def forget_topic(self, log: "TopicLog") -> None:
        """The topic is being deleted: leave it and its cursors out of what is written from now on."""
        self.logs.pop(log.topic_id, None)
        self._dirty_cursors = {key: None for key in self._dirty_cursors if key[0] is not log}

    def cursor_changed(self, log: "TopicLog", subscription: str) -> None:
        """Write that cursor with the next group, or soon if there is none."""
        self._dirty_cursors[log, subscription] = None
        self._schedule_lazy_hand_over()

    def _schedule_lazy_hand_over(self) -> None:
        if self._cursor_timer is None and not self._ended.done():
            self._cursor_timer = self.loop.call_later(
                self.settings.cursor_delay_ms_max / 1000, self._hand_over_lazily
            )

    def _hand_over_lazily(self) -> None:
        self._cursor_timer = None
        if not self._hand_over_scheduled:
            self._hand_over()

    def _hand_over_in_turn(self) -> None:
        """Hand over, but later if staging lags: who waits for answers slows down before he is refused."""
        if self._slowed is not None:
            return
        if self.is_crowded:
            self._slowed = self.loop.call_later(self.settings.slowed_ms_max / 1000, self._hand_over)
        else:
            self._hand_over()

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits to be staged that appends should come more slowly."""
        return self.unstaged_bytes > self._slow_from_bytes and bool(self.closed_files)

    def free(self, memory_bytes: int) -> None:
        """So much is in runs now, or not needed any more."""
        self.unstaged_bytes -= memory_bytes
        if self.unstaged_bytes <= self._slow_from_bytes:
            if self._slowed is not None:
                self._hand_over()
            self._guard(self.on_roomy)

    def _hand_over(self) -> None:
        """Give what is pending to the writer: once per tick, however many appends there were."""
        self._hand_over_scheduled = False
        if self._slowed is not None:
            self._slowed.cancel()
            self._slowed = None
        if self._refusal is not None or self._writer is None:
            return
        if self._dirty_cursors:
            self._encode_cursors()
        pending = self._pending
        if not pending.count:
            return
        self._outstanding.append(pending)
        self._outstanding_disk_bytes += pending.disk_bytes_max
        self._pending = PendingBatch(self.file_sequence)
        self._measure_room()
        self._writer.put(pending)

    def _encode_cursors(self) -> None:
        """Move the changed cursors into the pending batch."""
        dirty, self._dirty_cursors = self._dirty_cursors, {}
        entries = [
            encode_cursor(log.topic_id, log.epoch, subscription, log.cursors[subscription])
            for log, subscription in dirty
            if subscription in log.cursors
        ]
        size = sum(map(len, entries))
        if size > self._room and self._rotate_if_used():
            return  # The new file begins with every cursor as it is now.
        pending = self._pending
        pending.buffers += entries
        pending.count += len(entries)
        pending.bytes += size
        pending.sync_soon = True
        self._room -= size

    def _measure_room(self) -> None:
        """How many entry bytes still fit into the file, whatever way they will be grouped."""
        # A file must be worth its snapshot, however many topics there are.
        limit = max(self.settings.file_bytes, 4 * self._begun_position) - RESERVE_BYTES - _SLACK_BYTES
        self._room = limit - self._position - self._outstanding_disk_bytes - self._pending.bytes
        if self.open_file_bytes > self.settings.unstaged_bytes_max // 4:
            # Small messages take more memory than disk: stage before memory runs out, not after.
            self._room = 0

    # Rotation: a full file is closed and the next one begun.

    def rotate(self) -> asyncio.Future[None]:
        """Begin a new file now; the future is done when it is in use."""
        begun: asyncio.Future[None] = self.loop.create_future()
        if self._refusal is not None:
            begun.set_exception(_copy(self._refusal))
            return begun
        self._dirty_cursors.clear()  # The new file begins with every cursor as it is now.
        self._hand_over()
        self._rotations.append(begun)
        self.file_sequence += 1
        self._request_rotation()
        return begun

    def _rotate_if_used(self) -> bool:
        """Begin a new file unless this one has nothing but its snapshot: the next would be no larger."""
        if self._position + self._outstanding_disk_bytes + self._pending.bytes <= self._begun_position:
            return False
        # Nobody waits for this one: a failure shows in `refusal` and in the appends it makes fail.
        self.rotate().add_done_callback(asyncio.Future.exception)
        return True

    def _request_rotation(self) -> None:
        snapshot = self._snapshot()
        self._position = self._begun_position = bytes_on_disk(snapshot.bytes_max)
        self._outstanding_disk_bytes = 0
        self.open_file_bytes = 0
        self._pending.file_sequence = self.file_sequence
        self._measure_room()
        assert self._writer is not None
        self._writer.put(Rotate(self.file_sequence, snapshot.encode))

    def _snapshot(self) -> Snapshot:
        topics = [
            TopicFacts(
                log.topic_id,
                log.epoch,
                log.start_offset,
                log.next_offset,
                dict(log.cursors),
                log.producers.facts(log.committed_end),
            )
            for log in self.logs.values()
        ]
        topics += [
            TopicFacts(
                topic.topic_id,
                topic.epoch,
                topic.start_offset,
                topic.next_offset,
                dict(topic.cursors),
                topic.producers.facts(topic.next_offset),
            )
            for topic in self.recovered.values()
        ]
        return Snapshot(topics)

    # Reports of the writer thread, already moved into the loop thread, in the order they were made.

    def batches_committed(self, count: int, file_sequence: int, position: int) -> None:
        batches = [self._outstanding.popleft() for _ in range(count)]
        touched: dict[TopicLog, None] = {}
        entry_at = position - bytes_on_disk(sum([batch.bytes for batch in batches])) + HEADER_BYTES
        for batch in batches:
            self.written.add(file_sequence, entry_at, batch.buffers, batch.count)
            entry_at += batch.bytes
            for log, end in batch.ends.items():
                log.committed_end = end
                touched[log] = None
            if batch.file_sequence == self.file_sequence:
                self._outstanding_disk_bytes -= batch.disk_bytes_max
        if file_sequence == self.file_sequence:
            self._position = position
            self._measure_room()
        self._being_told = batches[-1].dones
        for batch in batches:
            self._tell(batch.dones, None)
        self._being_told = None
        for log in touched:
            self._guard(log.on_committed)
        self._guard(self.after_commit)

    def file_begun(self, file_sequence: int, position: int) -> None:
        self.closed_files.append(file_sequence - 1)
        self._reserve_bytes = RESERVE_BYTES // 2
        if file_sequence == self.file_sequence:
            self._begun_position = self._position = position
            self._measure_room()
        if self._refusal is not None and self._refusal.code is ErrorCode.DISK_FULL:
            logger.info("journal accepts appends again file_sequence=%d", file_sequence)
            self._refusal = None
        if self._rotations and not (begun := self._rotations.popleft()).done():
            begun.set_result(None)
        self.on_rotated()

    def rotation_failed(self, file_sequence: int, error: OSError) -> None:
        """The disk has no room for another file. Nothing after the last one was written: undo it all."""
        first = self._refusal is None
        self._refusal = Unavailable(
            f"no new journal file: {error.strerror or error}; free disk space, publishing goes on by itself then",
            ErrorCode.DISK_FULL,
        )
        self.file_sequence = file_sequence - 1
        if first:
            self._dirty_cursors = {(log, name): None for log in self.logs.values() for name in log.cursors}
            self._fail_everything(self._refusal, in_flight=self._refusal)
        self._space_timer = self.loop.call_later(self.settings.space_retry_ms / 1000, self._try_space_again)

    def _try_space_again(self) -> None:
        self._space_timer = None
        self.file_sequence += 1
        self._request_rotation()

    def writer_stopped(self, error: Exception | None) -> None:
        if error is not None:
            self._refusal = Unavailable(
                f"the journal stopped after a failed write ({error}); what was acknowledged before is safe; "
                "repair the disk and restart the broker",
                ErrorCode.JOURNAL_STOPPED,
            )
            in_flight = OutcomeUnknown(
                f"the journal failed while the message was being written ({error}): it may be there after a restart",
                ErrorCode.OUTCOME_UNKNOWN,
            )
            self._fail_everything(self._refusal, in_flight=in_flight)
        if not self._ended.done():
            self._ended.set_result(None)

    def _fail_everything(self, error: DanubeError, *, in_flight: DanubeError) -> None:
        """Take back every offset that was given out and not committed, then tell the callers."""
        outstanding, self._outstanding = self._outstanding, deque()
        pending, self._pending = self._pending, PendingBatch(self.file_sequence)
        self._outstanding_disk_bytes = 0
        for log in {log: None for batch in (*outstanding, pending) for log in batch.ends}:
            self.free(log.take_back())
        for batch in outstanding:
            self._tell(batch.dones, in_flight)
        self._tell(pending.dones, error)
        rotations, self._rotations = self._rotations, deque()
        for begun in rotations:
            if not begun.done():
                begun.set_exception(_copy(error))

    def _tell(self, dones: list[Done], error: DanubeError | None) -> None:
        for done in dones:
            try:
                done(error)
            except Exception as caught:
                self._report_bug(done, caught)

    def _guard(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception as caught:
            self._report_bug(callback, caught)

    def _report_bug(self, callback: object, caught: Exception) -> None:
        # One caller's bug must not keep the others from hearing that their messages are durable.
        self.loop.call_exception_handler(
            {"message": f"journal callback {callback!r} raised", "exception": caught}
        )

    # Closing.

    async def close(self) -> None:
        """Write what is pending, sync, say on disk that this was a clean end."""
        if self._writer is None:
            return
        self._hand_over()
        for timer in (self._cursor_timer, self._space_timer):
            if timer is not None:
                timer.cancel()
        if not self._ended.done():
            stopping = Unavailable("the broker is stopping: nothing more is appended", ErrorCode.STOPPING)
            self._refusal = self._refusal or stopping
            self._writer.put(Close(self._last_words()))
        await self._ended
        await asyncio.to_thread(self._writer.join)

    def _last_words(self) -> list[bytes]:
        """Cursors that found no file to go to; as many as the reserve holds, the rest is delivered again."""
        entries: list[bytes] = []
        room = RESERVE_BYTES // 2 - _SLACK_BYTES
        for log, subscription in self._dirty_cursors:
            facts = encode_topic_state(
                log.topic_id, log.epoch, start_offset=log.start_offset, next_offset=log.next_offset
            )
            cursor = encode_cursor(log.topic_id, log.epoch, subscription, log.cursors[subscription])
            room -= len(facts) + len(cursor)
            if room < 0:
                break
            entries += [facts, cursor]
        return entries


def _copy(error: DanubeError) -> DanubeError:
    # Raising one object again and again would grow its traceback.
    return type(error)(error.text, error.code)


def _nothing() -> None:
    """The default of a callback nobody needs."""
