"""A reader: a range of a topic sent in order through one outlet, without subscription, cursor or acks."""

import asyncio
from collections import deque
from collections.abc import Callable

import structlog

from pydanube.broker.agenda import Agenda
from pydanube.broker.sessions import Outlet
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected
from pydanube.log.tail import Row
from pydanube.log.topic_log import OffsetGone, TopicLog
from pydanube.protocol.native.batch import message_count

log = structlog.get_logger("pydanube.broker")

READ_BYTES_MAX = 2 * 1024 * 1024
READ_MESSAGES_MAX = 50_000
"""What is read at once; at most twice as much is held beside what the outlet has taken."""


class Reader:
    """Reads as fast as its outlet takes: what is not read stays in the log, not in memory."""

    def __init__(
        self,
        topic_log: TopicLog,
        topic: str,
        outlet: Outlet,
        agenda: Agenda,
        *,
        next_offset: int,
        end_offset: int | None,
        on_closed: Callable[["Reader"], None],
    ) -> None:
        self.is_listed = False
        self.next_offset = next_offset
        self.end_offset = end_offset
        self._log = topic_log
        self.topic = topic
        self._outlet = outlet
        self._agenda = agenda
        self._on_closed = on_closed
        self._ahead: deque[Row] = deque()
        self._refill_below = 0
        """With fewer entries left of what was fetched, the next are fetched while these are sent."""
        self._reading: asyncio.Task[None] | None = None
        self._failure: DanubeError | None = None
        """Why nothing could be read behind what is ahead."""
        self._is_closed = False

    def drained(self) -> None:
        """The outlet has room again."""
        self._agenda.add(self)

    def run(self) -> None:
        """Send what the outlet takes and what is there."""
        if self._is_closed:
            return
        if self._failure is not None and not self._ahead:
            self.end(self._failure)
            return
        end = self._log.committed_end
        if self.end_offset is not None:
            end = min(end, self.end_offset)
        outlet = self._outlet
        try:
            while self.next_offset < end and outlet.room() > 0 and outlet.room_bytes() > 0:
                if not self._ahead and not self._refill():
                    return
                self._send(self._ahead.popleft(), end)
        except DanubeError as error:
            self.end(error)
            return
        if self.end_offset is not None and self.next_offset >= self.end_offset:
            self.end()
        elif len(self._ahead) < self._refill_below:
            self._fetch_behind(end)

    def end(self, error: DanubeError | None = None) -> None:
        """Tell the client that there is nothing more to come, and why."""
        if not self._is_closed:
            self.close()
            self._outlet.end(error)

    def close(self) -> None:
        """Stop; the client went away or was told."""
        self._is_closed = True
        self._ahead.clear()
        if self._reading is not None:
            self._reading.cancel()
        self._on_closed(self)

    def _send(self, row: Row, end: int) -> None:
        base, body, append_ms, _ = row
        stop = base + message_count(body)
        skip = self.next_offset - base
        self.next_offset = min(stop, end)
        if skip < stop - base:
            self._outlet.send(base, append_ms, skip, self.next_offset - base - skip, 1, body)

    def _refill(self) -> bool:
        """Have something ahead; False if it has to be fetched first."""
        if self._reading is not None:
            return False  # these rows are on their way: they must not come twice
        if self._failure is not None:
            raise self._failure
        rows = self._read_memory()
        if rows is None:
            self._fetch(self.next_offset)
            return False
        self._ahead.extend(rows)
        self._refill_below = 0
        return bool(rows)

    def _fetch_behind(self, end: int) -> None:
        """Fetch what comes behind the entries at hand: the outlet shall not wait for the disk once it has taken these."""
        offset = self.next_offset
        if self._ahead:
            base, body, _, _ = self._ahead[-1]
            offset = base + message_count(body)
        if offset < end:
            self._fetch(offset)

    def _fetch(self, offset: int) -> None:
        if self._reading is None and self._failure is None:
            self._reading = asyncio.get_running_loop().create_task(self._read_cold(offset))

    def _read_memory(self) -> list[Row] | None:
        try:
            return self._log.read(self.next_offset, messages_max=READ_MESSAGES_MAX, bytes_max=READ_BYTES_MAX)
        except OffsetGone as gone:
            raise _gone(self.topic, self.next_offset, gone) from gone

    async def _read_cold(self, offset: int) -> None:
        try:
            rows = await self._log.read_cold(
                offset,
                messages_max=READ_MESSAGES_MAX,
                bytes_max=READ_BYTES_MAX,
                merged_max=self._outlet.merged_max,
            )
            self._ahead.extend(rows)
            self._refill_below = len(rows) // 2 + 1
        except OffsetGone as gone:
            self._failure = _gone(self.topic, offset, gone)
        except DanubeError as error:
            log.error("stored messages cannot be read", topic=self.topic, offset=offset, error=error.text)
            self._failure = error
        finally:
            self._reading = None
            self._agenda.add(self)


def _gone(topic: str, offset: int, gone: OffsetGone) -> Rejected:
    return Rejected(
        f"offset {offset} of topic {topic} was deleted by retention: the oldest one is {gone.start_offset}; open the "
        "reader there, or keep messages longer",
        ErrorCode.OFFSET_GONE,
    )
