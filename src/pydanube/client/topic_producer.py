"""Publishing to one topic or partition: drives a PublishQueue over whichever connection serves the topic."""

import asyncio
import time
from contextlib import suppress
from typing import Final

from pydanube.client.budget import Budget
from pydanube.client.cluster import Cluster
from pydanube.client.connection import Connection
from pydanube.client.encoding import ROW_BYTES_MAX, Sender, Timing
from pydanube.client.errors import TAKEOVER_CODES, Disconnected, Refused, Timeout
from pydanube.client.fields import too_large
from pydanube.client.options import ProducerOptions
from pydanube.client.outgoing import (
    MESSAGE_OVERHEAD_BYTES,
    Extras,
    MessageBatch,
    PendingSend,
    Publish,
    Run,
)
from pydanube.client.publish_queue import Failed, PublishQueue
from pydanube.client.retries import Patience
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import NO_OFFSET, Item, decode_published
from pydanube.protocol.native.frames import Frame, publish_header

_PASSING: Final = frozenset({ErrorCode.OVERLOADED, ErrorCode.DISK_FULL})
"""Refusals that pass where they happened; any other that may pass calls for looking the topic up again."""
_SESSION_LOST: Final = frozenset({ErrorCode.PRODUCER_UNKNOWN, ErrorCode.CHANNEL_UNKNOWN})
CLOSE_SECONDS_MAX: Final = 2.0
AHEAD_BYTES: Final = 32 * 1024
"""Bytes of the budget a batch takes ahead, so that most messages need not look at the budget at all."""
AHEAD_PARTS: Final = 16
"""And at most this part of what is left, so that partitions do not starve each other."""


class TopicProducer:
    """The lane of a producer that leads to one topic."""

    def __init__(
        self, cluster: Cluster, topic: str, name: str, options: ProducerOptions, budget: Budget
    ) -> None:
        self.topic: Final = topic
        self.batch: MessageBatch | None = None
        """Collects messages until it is closed; None if nothing was sent since."""
        self.payload_bytes_max = ROW_BYTES_MAX
        """Largest payload the topic takes."""
        self.unseen: DanubeError | None = None
        """A failure nobody was waiting for."""
        self._cluster = cluster
        self._name = name
        self._options = options
        self._budget = budget
        self._queue = PublishQueue(topic, idempotent=options.idempotent)
        self._loop = asyncio.get_running_loop()
        self._patience = Patience(cluster.retries)
        self._connection: Connection | None = None
        self._channel = 0
        self._ended_early: DanubeError | None = None
        self._wire_bytes = 0
        """Bodies on their way in this channel."""
        self._why_held: DanubeError | None = None
        """Why what was refused cannot be repeated at once; None if it can."""
        self._gap_is_ours = False
        """A publish failed for good, so those behind it are refused for the gap it left."""
        self._sender = Sender(0, name, topic)
        self._epoch: int | None = None
        self._linger: asyncio.Handle | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def last_sequence(self) -> int:
        return self._queue.last_sequence

    @property
    def is_idle(self) -> bool:
        return self.batch is None and self._queue.is_idle

    async def open(self) -> None:
        """Register with the broker for the first time."""
        await self._cluster.with_retries(self._open_channel)

    def stamp(self, schema_id: int, schema_version: int) -> None:
        """From now on messages that name no schema name this one."""
        self._sender = self._sender._replace(schema_id=schema_id, schema_version=schema_version)

    # Collecting

    def add(self, payload: bytes, extras: Extras, timing: Timing) -> PendingSend:
        """Take a message into the batch being collected, or into a new one if it does not fit."""
        batching = self._options.batching
        if len(payload) > self.payload_bytes_max:
            raise too_large(self.topic, len(payload), self.payload_bytes_max)
        size = len(payload) + MESSAGE_OVERHEAD_BYTES + extras.size
        batch = self.batch
        if batch is not None and (
            batch.timing != timing or batch.size - batch.spare + size > batching.max_bytes
        ):
            self.close_batch()
            batch = None
        missing = size if batch is None else size - batch.spare
        if missing > 0 and not self._budget.has_room(missing):
            raise self._budget.full(self.topic)
        batch = batch or self._new_batch(timing)
        if missing > 0:
            ahead = min(AHEAD_BYTES, batching.max_bytes, self._budget.left // AHEAD_PARTS)
            # A topic with a small limit wants every payload looked at, which the fast way does not do.
            if self.payload_bytes_max < batching.max_bytes:
                ahead = 0
            self._budget.used += missing + ahead
            batch.set_aside(missing + ahead)
        pending = PendingSend(batch, batch.add(payload, extras, size))
        if len(batch.payloads) >= batching.max_messages or batch.size - batch.spare >= batching.max_bytes:
            self.close_batch()
        return pending

    def _new_batch(self, timing: Timing) -> MessageBatch:
        self.check_usable()
        now_ms = time.time_ns() // 1_000_000
        batch = MessageBatch(now_ms, timing, self.failed_unseen, self._batch_hurried)
        self.batch = batch
        linger_ms = self._options.batching.linger_ms
        if linger_ms:
            self._linger = self._loop.call_later(linger_ms / 1000, self.close_batch)
        elif self._queue.is_idle:
            # At the end of this tick, so that what is sent in one go leaves together.
            self._linger = self._loop.call_soon(self.close_batch)
        return batch

    def check_usable(self) -> None:
        if self._queue.fatal is not None:
            raise self._queue.fatal
        if self._is_closed:
            raise Rejected(f"{self.topic}: the producer is closed")

    def failed_unseen(self, error: DanubeError) -> None:
        self.unseen = self.unseen or error

    def _batch_hurried(self, batch: MessageBatch) -> None:
        if batch is self.batch and self._queue.is_idle:
            if self._linger is not None:
                self._linger.cancel()
            self._linger = self._loop.call_soon(self.close_batch)

    def close_batch(self) -> None:
        """What was collected goes to the queue."""
        batch, self.batch = self.batch, None
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if batch is not None:
            self._budget.release(batch.seal())
            self.enqueue(batch)

    def enqueue(self, publish: Publish) -> None:
        """Publish after all that came before. Its size is in the budget already."""
        if self._queue.fatal is not None:
            # Collected before that was known. Opening for it would shut out whoever shut us out.
            self._settle([Failed(publish, self._queue.fatal)])
            return
        self._queue.add(publish)
        if self._connection is None and self._recovery is None:
            # Patience ended before, and has been renewed by whoever sends again.
            self._patience.succeeded()
            self._recover(Disconnected(f"{self.topic}: not connected"), reopen=True)
        self._pump()

    # Publishing

    def _pump(self) -> None:
        """Send what may be sent now."""
        connection = self._connection
        while connection is not None:
            publish = self._queue.peek()
            if publish is None or not connection.may_publish(self, publish.size):
                return
            try:
                parts = publish.encode(self._sender, self._options.batching.compression)
            except Rejected as error:
                self._settle([Failed(self._queue.drop(), error)])
                continue
            request = connection.next_request()
            self._queue.sent(request)
            size = sum(map(len, parts))
            publish.wire_bytes = size
            publish.sent_at = self._loop.time()
            self._wire_bytes += size
            connection.publishing(size)
            connection.write(publish_header(self._channel, request, publish.sequence, size), parts, size)
            if self._answer_timer is None:
                self._answer_timer = self._loop.call_later(self._cluster.timeout, self._check_answers)

    def _check_answers(self) -> None:
        """Give the channel up if the broker owes an answer for too long."""
        self._answer_timer = None
        oldest = self._queue.oldest_sent()
        if oldest is None:
            return
        due = oldest.sent_at + self._cluster.timeout
        if self._loop.time() < due:
            self._answer_timer = self._loop.call_at(due, self._check_answers)
            return
        self._abandon_channel()
        self._lost(Timeout(f"{self.topic}: a publish was not answered within {self._cluster.timeout:g} s"))

    def _settle(self, failed: list[Failed]) -> None:
        for publish, error in failed:
            self._budget.release(publish.size)
            publish.failed(error)

    # What the connection calls

    def frame_received(self, frame: Frame) -> None:
        if frame.kind == frames.PUBLISHED:
            self._published(frame.body)
        elif frame.kind == frames.ERROR and frame.request:
            self._refused(frame.request, Refused.decode(frame.body, self.topic))
        elif frame.kind == frames.ERROR:
            self._ended(Refused.decode(frame.body, self.topic).error)
        elif frame.kind == frames.CLOSED:
            self._ended(Disconnected(f"{self.topic}: the broker closed the producer"))

    def items_received(self, items: list[Item]) -> None:
        """Nothing is delivered to a producer."""

    def connection_lost(self, error: DanubeError) -> None:
        if self._connection is not None:
            self._connection = None
            self._wire_bytes = 0
            self._lost(error)

    def _ended(self, error: DanubeError) -> None:
        """The broker ended the channel, perhaps before we noticed that it had opened it."""
        if self._connection is None:
            self._ended_early = error
            return
        self._abandon_channel(tell=False)
        self._end_if_fenced(error)
        self._lost(error)

    def writable(self) -> None:
        self._pump()

    def _published(self, body: bytes) -> None:
        for request, messages, offset in decode_published(body):
            publish, failed = self._queue.published(request, messages)
            self._answered(publish)
            publish.succeeded(Run(self.topic, None if offset == NO_OFFSET else offset, messages))
            self._settle(failed)
        self._patience.succeeded()
        self._go_on()

    def _refused(self, request: int, refused: Refused) -> None:
        publish, failed = self._queue.refused(request, refused)
        self._answered(publish, taken=False)
        self._settle(failed)
        self._gap_is_ours = self._gap_is_ours or bool(failed)
        self._note_why_held(refused, failed)
        self._go_on()

    def _note_why_held(self, refused: Refused, failed: list[Failed]) -> None:
        """A final refusal, and the gap it leaves, need no waiting; anything else needs time or a new channel."""
        error = refused.error
        known = self._why_held
        if failed or (known is not None and known.code not in _PASSING):
            return
        if error.code in _SESSION_LOST:
            self._why_held = Disconnected(error.text)
        elif refused.expected_sequence is None:
            self._why_held = error
        elif known is None and not self._gap_is_ours:
            self._why_held = Unavailable(error.text, ErrorCode.SESSION_GONE)

    def _answered(self, publish: Publish, *, taken: bool = True) -> None:
        if self._connection is not None:
            self._wire_bytes -= publish.wire_bytes
            self._connection.published(publish.wire_bytes)
        if taken:
            self._budget.release(publish.size)

    def _go_on(self) -> None:
        """After an answer: repeat, close a batch that waited for this moment, or send on."""
        if self._queue.is_held:
            if self._queue.is_drained:
                self._resume()
            return
        batch = self.batch
        if (
            batch is not None
            and self._queue.is_idle
            and (batch.is_hurried or not self._options.batching.linger_ms)
        ):
            self.close_batch()
        else:
            self._pump()

    def _resume(self) -> None:
        """Everything on its way was answered, with refusals among the answers."""
        why, self._why_held = self._why_held, None
        self._gap_is_ours = False
        if self._queue.fatal is not None:
            self._abandon_channel()
        elif why is None and self._queue.rewind():
            self._pump()
        else:
            reason = why or Disconnected(f"{self.topic}: the session must be renewed")
            reopen = why is None or why.code not in _PASSING
            self._recover(reason, reopen=reopen)

    # Recovering

    def _lost(self, error: DanubeError) -> None:
        """The channel is gone: find the topic again, unless nobody wants it."""
        self._connection = None
        self._why_held = None
        self._gap_is_ours = False
        self._settle(self._queue.lost())
        if not self._is_closed and self._queue.fatal is None:
            self._recover(error, reopen=True)

    def _recover(self, reason: DanubeError, *, reopen: bool) -> None:
        if self._recovery is None:
            self._recovery = self._loop.create_task(self._try_again(reason, reopen=reopen))

    async def _try_again(self, reason: DanubeError, *, reopen: bool) -> None:
        """Pause, open a channel if need be, and go on; give up when patience ends."""
        try:
            while True:
                pause = self._patience.failed(self._loop.time())
                if pause is None:
                    break
                await asyncio.sleep(pause)
                if not reopen and self._connection is not None and self._queue.rewind():
                    break
                self._abandon_channel()
                self._settle(self._queue.lost())
                reopen = True
                try:
                    await self._open_channel()
                    break
                except DanubeError as error:
                    reason = error
                    if not (isinstance(error, Unavailable) or error.code in TAKEOVER_CODES):
                        self._end_if_fenced(error)
                        break
        finally:
            self._recovery = None
        if self._connection is None or self._queue.is_held:
            self._abandon_channel()
            self._settle(self._queue.give_up(reason))
            return
        if self._queue.is_idle:
            self._patience.succeeded()
        self._pump()

    def _end_if_fenced(self, error: DanubeError) -> None:
        if error.code is ErrorCode.PRODUCER_FENCED:
            self._settle(self._queue.end(error))

    async def _open_channel(self) -> None:
        """Find the topic's broker and open a channel there, in the old session if it can go on."""
        location = await self._cluster.locate(self.topic)
        connection = await self._cluster.connection(location.address)
        while True:
            opened, channel = await self._open_producer(connection)
            self._epoch = opened.epoch
            if self._queue.reopened(opened.last_sequence):
                break
            connection.detach(channel)
            connection.send(frames.CLOSE, channel, connection.next_request(), b"")
        problem = self._queue.fatal or self._ended_early
        if problem is None and not connection.is_open:
            problem = Disconnected(f"{self.topic}: the connection was lost at once")
        if problem is not None:
            connection.detach(channel)
            raise problem
        self.payload_bytes_max = min(opened.message_bytes_max or ROW_BYTES_MAX, ROW_BYTES_MAX)
        self._sender = self._sender._replace(producer_id=opened.producer_id)
        self._connection, self._channel = connection, channel

    async def _open_producer(self, connection: Connection) -> tuple[pb.ProducerOpened, int]:
        options = self._options
        request = pb.OpenProducer(
            topic=self.topic,
            name=self._name,
            dispatch=pb.RELIABLE if options.reliable else pb.NON_RELIABLE,
            exclusive=options.exclusive,
            schema_subject=options.schema_subject,
            idempotent=options.idempotent,
            epoch=None if self._queue.needs_new_session else self._epoch,
        )
        self._ended_early = None
        channel, body = await connection.open_channel(
            self,
            frames.OPEN_PRODUCER,
            request.SerializeToString(),
            answer=frames.PRODUCER_OPENED,
            what=f"opening a producer on {self.topic}",
        )
        return pb.ProducerOpened.FromString(body), channel

    def _abandon_channel(self, *, tell: bool = True) -> None:
        """Let go of the channel without waiting for anybody."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        connection.detach(self._channel)
        if tell:
            connection.send(frames.CLOSE, self._channel, connection.next_request(), b"")
        unanswered = [
            publish for publish in self._queue.pending() if publish.request and publish.may_be_taken
        ]
        connection.published(sum(publish.wire_bytes for publish in unanswered))

    # Ending

    async def flush(self) -> None:
        """Send what was collected and wait until all of it is answered; failures are in `unseen`."""
        self.close_batch()
        for publish in self._queue.pending():
            await publish.wait()
            if publish.error is not None:
                self.failed_unseen(publish.error)

    async def close(self) -> None:
        """Stop at once: what is unanswered fails."""
        if self._is_closed:
            return
        self._is_closed = True
        self.close_batch()
        if self._recovery is not None:
            self._recovery.cancel()
            with suppress(asyncio.CancelledError):
                await self._recovery
        for timer in (self._linger, self._answer_timer):
            if timer is not None:
                timer.cancel()
        connection, channel = self._connection, self._channel
        self._abandon_channel(tell=False)
        self._settle(
            self._queue.give_up(Unavailable(f"{self.topic}: the producer was closed before the answer"))
        )
        if connection is not None:
            with suppress(DanubeError):
                await connection.request(
                    frames.CLOSE,
                    b"",
                    channel=channel,
                    answer=frames.CLOSED,
                    what=f"closing the producer of {self.topic}",
                    timeout=CLOSE_SECONDS_MAX,
                )
