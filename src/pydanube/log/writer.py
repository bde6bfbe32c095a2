"""The writer thread: takes what the loop hands over, writes it as groups, syncs, reports back.

The only place that writes to journal files after recovery. It holds no state of topics: what a new
file must begin with comes as part of the request to begin it.

After a failed write or sync the thread ends for good. The kernel may have thrown the dirty pages away
and call the next sync a success, so nothing written before can be trusted to reach the disk any more.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol

from pydanube.entries.blocks import Blocks
from pydanube.entries.disk import Disk, write_all
from pydanube.log.files import JournalDirectory
from pydanube.log.group import FLAG_MARKER, FLAG_SNAPSHOT, encode_group
from pydanube.log.settings import JournalSettings
from pydanube.log.stats import WriterStats

logger = logging.getLogger("pydanube.log")

WRITTEN_AT_ONCE_BYTES = 4 << 20
"""A larger group is written in such pieces, each synced: from here on a disk is not quicker, and memory is held for it."""


class Batch(Protocol):
    """What one loop tick handed over; stays untouched until it is reported."""

    @property
    def buffers(self) -> list[bytes]: ...
    @property
    def bytes(self) -> int: ...
    @property
    def count(self) -> int:
        """Entries in `buffers`."""
        ...

    @property
    def sync(self) -> bool:
        """Durable before it is reported."""
        ...

    @property
    def sync_soon(self) -> bool:
        """Durable within the sync interval."""
        ...

    @property
    def is_urgent(self) -> bool:
        """Written even while there is no new file: it fits into the reserve of the old one."""
        ...


class Rotate:
    """Close the file and begin the next one with this snapshot, encoded by the writer thread."""

    __slots__ = ("sequence", "snapshot")

    def __init__(self, sequence: int, snapshot: Callable[[], list[bytes]]) -> None:
        self.sequence = sequence
        self.snapshot = snapshot


class Close:
    """Write these last entries, sync everything, say so on disk, and end the thread."""

    __slots__ = ("entries",)

    def __init__(self, entries: list[bytes]) -> None:
        self.entries = entries


class Reports(Protocol):
    """What the thread tells; each method must return at once and may be called from the thread."""

    def committed(self, batches: int, file_sequence: int, position: int) -> None:
        """The oldest `batches` hand-overs are written, and durable if one of them asked for it."""
        ...

    def rotated(self, file_sequence: int, position: int) -> None: ...

    def rotation_failed(self, file_sequence: int, error: OSError) -> None:
        """No new file; nothing was written, and nothing will be until the next Rotate succeeds."""
        ...

    def stopped(self, error: Exception | None) -> None:
        """The thread ends: because of `error`, or as asked."""
        ...


class JournalWriter:
    """Owns the open journal file."""

    def __init__(
        self,
        *,
        disk: Disk,
        directory: JournalDirectory,
        settings: JournalSettings,
        reports: Reports,
        journal_id: int,
        file_sequence: int,
        fd: int,
        position: int,
        group_sequence: int,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._settings = settings
        self._reports = reports
        self._journal_id = journal_id
        self._file_sequence = file_sequence
        self._fd = fd
        self._blocks = Blocks(WRITTEN_AT_ONCE_BYTES)
        self._past_cache = disk.bypass_cache(fd, True)
        self._position = position
        self._next_group = group_sequence
        self._synced_group = group_sequence - 1
        # A journal just opened has had everything in it synced, but no group says so yet.
        self._marked_group = 0
        self._sync_due: float | None = None
        self._refusing = False
        self.stats = WriterStats()
        self._queue: SimpleQueue[Batch | Rotate | Close] = SimpleQueue()
        self._held: Batch | Rotate | Close | None = None
        self._runner = threading.Thread(target=self._run, name="journal-writer", daemon=True)

    def start(self) -> None:
        self._runner.start()

    def put(self, command: Batch | Rotate | Close) -> None:
        """Queue a command; bounded by the caller, who counts the bytes it has handed over."""
        self._queue.put(command)

    def join(self) -> None:
        self._runner.join()

    def _run(self) -> None:
        error: Exception | None = None
        try:
            while not isinstance(command := self._next_command(), Close):
                if isinstance(command, Rotate):
                    self._rotate(command)
                elif command.is_urgent or not self._refusing:
                    self._commit(command)
            self._end(command)
        except Exception as caught:
            logger.error(
                "journal stopped file=%s error=%r", self._directory.path_of(self._file_sequence), caught
            )
            error = caught
        finally:
            with suppress(OSError):
                self._disk.close(self._fd)
        self._reports.stopped(error)

    def _next_command(self) -> Batch | Rotate | Close:
        """Wait for work; do what is due by time meanwhile."""
        if self._held is not None:
            command, self._held = self._held, None
            return command
        while True:
            try:
                return self._queue.get(timeout=self._idle_seconds())
            except Empty:
                self._do_what_is_due()

    def _idle_seconds(self) -> float | None:
        marker = self._settings.marker_delay_ms / 1000 if self._marked_group < self._synced_group else None
        if self._sync_due is None:
            return marker
        sync = max(self._sync_due - time.monotonic(), 0.0)
        return sync if marker is None else min(sync, marker)

    def _do_what_is_due(self) -> None:
        if self._sync_due is not None and time.monotonic() >= self._sync_due:
            self._sync()
        elif self._marked_group < self._synced_group:
            self._write_marker(sync=False)

    def _commit(self, first: Batch) -> None:
        """Write this hand-over and whatever else waits as one group."""
        batches = [first]
        size = first.bytes
        # Nobody else takes from the queue: what is there now stays there.
        while self._held is None and not self._refusing and not self._queue.empty():
            command = self._queue.get_nowait()
            if (
                isinstance(command, Rotate | Close)
                or command.is_urgent
                or size + command.bytes > self._settings.group_bytes_max
            ):
                self._held = command
                break
            batches.append(command)
            size += command.bytes
        buffers, count, sync, sync_soon = first.buffers, first.count, first.sync, first.sync_soon
        if len(batches) > 1:
            buffers = [buffer for batch in batches for buffer in batch.buffers]
            for batch in batches[1:]:
                count += batch.count
                sync = sync or batch.sync
                sync_soon = sync_soon or batch.sync_soon
        self._write(buffers, count=count, sync=sync)
        if sync_soon and self._sync_due is None and self._unsynced():
            self._sync_due = time.monotonic() + self._settings.sync_interval_ms / 1000
        self._reports.committed(len(batches), self._file_sequence, self._position)

    def _write(self, buffers: list[bytes], *, count: int, sync: bool, flags: int = 0) -> None:
        parts, _ = encode_group(
            buffers,
            count=count,
            flags=flags,
            journal_id=self._journal_id,
            file_sequence=self._file_sequence,
            group_sequence=self._next_group,
            synced_group=self._synced_group,
            position=self._position,
        )
        # A synced write makes its own bytes durable, not those before it.
        sync_by_write = sync and not self._unsynced()
        self._marked_group = self._synced_group
        position, began_ns = self._position, time.monotonic_ns()
        if self._past_cache:
            for piece in self._blocks.filled(parts):
                self._position = write_all(self._disk, self._fd, [piece], self._position, sync=sync_by_write)
        else:
            self._position = write_all(self._disk, self._fd, parts, position, sync=sync_by_write)
        self._next_group += 1
        if sync_by_write:
            self._synced_group = self._next_group - 1
        elif sync:
            self._sync()
        stats = self.stats
        stats.groups += 1
        stats.bytes += self._position - position
        if sync:
            stats.syncs += 1
            stats.sync_latency_us.record((time.monotonic_ns() - began_ns) // 1_000)

    def _unsynced(self) -> bool:
        return self._synced_group < self._next_group - 1

    def _sync(self) -> None:
        self._disk.fdatasync(self._fd)
        self._synced_group = self._next_group - 1
        self._sync_due = None

    def _write_marker(self, *, sync: bool) -> None:
        """An empty group that says how far the journal is durable.

        Without it, damage to the last group looks like a write that was never finished.
        """
        self._write([], count=0, sync=sync, flags=FLAG_MARKER)

    def _rotate(self, command: Rotate) -> None:
        """Begin the next file. A failure before its first byte is written leaves the old one in use."""
        if command.sequence != self._file_sequence + 1:
            return  # Asked for before the loop heard that the one before failed.
        if self._unsynced():
            self._sync()
        try:
            fd = self._directory.begin(command.sequence)
        except OSError as error:
            logger.warning("no new journal file sequence=%d error=%r", command.sequence, error)
            self._refusing = True
            self._reports.rotation_failed(command.sequence, error)
            return
        self._disk.close(self._fd)
        self._fd = fd
        self._past_cache = self._disk.bypass_cache(fd, True)
        self._file_sequence = command.sequence
        self._position = 0
        entries = command.snapshot()
        self._write(entries, count=len(entries), sync=True, flags=FLAG_SNAPSHOT)
        self._refusing = False
        self.stats.rotations += 1
        self._reports.rotated(command.sequence, self._position)

    def _end(self, command: Close) -> None:
        if command.entries:
            self._write(command.entries, count=len(command.entries), sync=True)
        if self._unsynced():
            self._sync()
        self._write_marker(sync=True)
