"""The native protocol on an event loop: cuts frames, leads them to their channels, writes once per loop tick.

docs/protocol.md is the contract. Publishes, acks and credit are plain calls; requests that change facts run as
tasks. What is said while bytes are read goes out in one write at the end of the read; what a commit sets in
motion goes out in the pass that writes for all connections.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.batch import BATCH_BYTES_MAX, BATCH_MESSAGES_MAX, MERGED_COLUMNS
from pydanube.protocol.native.bodies import RANGES_MAX, check_range, decode_credit, decode_ranges
from pydanube.protocol.native.frames import Frame, FrameReader, encode_frame, frame_header
from pydanube.wire.calls import parse
from pydanube.wire.connections import ServedConnection
from pydanube.wire.intake import ANSWERS, JOURNAL, PUBLISHES, Intake
from pydanube.wire.native_channels import (
    Channel,
    ConsumerChannel,
    DeliveryChannel,
    ProducerChannel,
)
from pydanube.wire.native_requests import (
    close_channel,
    look_up,
    no_channel,
    open_producer,
    open_reader,
    seek,
    subscribe,
)
from pydanube.wire.native_server import NativeServer

if TYPE_CHECKING:
    from pydanube.wire.native_gate import NativeGate

log = logging.getLogger("pydanube.wire")

CLOSE_SECONDS: Final = 5.0
_OPENINGS: Final = (frames.OPEN_PRODUCER, frames.SUBSCRIBE, frames.OPEN_READER)
_JOINED_WRITE_BYTES: Final = 64 * 1024
"""Up to here one copy is cheaper than a list of buffers."""


class NativeConnection(ServedConnection):
    """One connection. An asyncio protocol by shape, not by base."""

    def __init__(self, server: NativeServer, on_lost: Callable[[], None]) -> None:
        self.loop: Final = asyncio.get_running_loop()
        self.server: Final = server
        self.broker: Final = server.broker
        self._on_lost = on_lost
        self._frames: Final = FrameReader(
            frames.HELLO_BYTES_MAX, preface=frames.PREFACE, buffer=server.receive_buffer
        )
        self._transport: asyncio.Transport | None = None
        self.channels: dict[int, Channel] = {}
        self._requests: dict[int, asyncio.Task[None]] = {}
        """Requests under way, by their number."""
        self._opening: set[int] = set()
        """Channels that are being opened."""
        self._speaking: list[Channel] = []
        """Channels that hold back frames for this tick's write."""
        self._is_full = False
        """Whether the channels were told that there is no room."""
        self._held_bytes = 0
        """What the speaking channels hold back."""
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._welcomed = False
        self.knows_merged = False
        """Whether the client knows the columns of merged batches."""
        self._connected = self.loop.time()
        self._heard = self._connected
        self._unanswered_bytes = 0
        self.intake: Final = Intake()
        self._is_held_back = False
        self._reading = False
        self._dirty = False
        self._paused = False
        self._stopping = False
        self._closing_since = 0.0
        self._gate: NativeGate | None = None if server.new_gate is None else server.new_gate(self)

    # For the gate

    def take_up(self, frame: Frame) -> None:
        """Handle a frame that had to wait."""
        try:
            if not self._closing_since and (self._gate is None or self._gate.permits(frame)):
                self._lead(frame)
        except DanubeError as error:
            self.give_up(error)
        except Exception:
            self._give_up_by_bug()

    # For channels

    def room_bytes(self) -> int:
        """How much more may be queued for delivery; 0 while the client is not taking what is sent."""
        if self._paused:
            return 0
        return max(self.server.limits.write_buffer_bytes - self._out_bytes - self._held_bytes, 0)

    def hold(self, size: int) -> None:
        """A channel holds back so much more for this tick's write; when the room is full, all hear of it."""
        self._held_bytes += size
        if self._held_bytes + self._out_bytes >= self.server.limits.write_buffer_bytes and not self._is_full:
            self._is_full = True
            self._tell_room()

    def release(self, size: int) -> None:
        """A channel emits or drops so much of what was held back."""
        self._held_bytes -= size

    def will_speak(self, channel: Channel) -> None:
        """The channel has frames to emit in this tick's write."""
        self._speaking.append(channel)
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def write(self, kind: int, channel: int, request: int, parts: list[bytes], size: int) -> None:
        """Queue one frame whose body is these parts."""
        self._out.append(frame_header(kind, channel, request, size))
        self._out += parts
        self._out_bytes += size + frames.HEADER_BYTES
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def answer(self, kind: int, channel: int, request: int, message: Message | None = None) -> None:
        """Queue one control frame."""
        frame = encode_frame(kind, channel, request, b"" if message is None else message.SerializeToString())
        self._out.append(frame)
        self._out_bytes += len(frame)
        if not self._reading and not self._dirty:
            self._mark_dirty()

    def fail(self, channel: int, request: int, error: DanubeError) -> None:
        """Answer a request with an error, or end a channel (request 0) or everything (channel 0 too) with it."""
        message = pb.Error(code=error.code.number, text=error.text, status=error.status)
        expected = getattr(error, "expected_sequence", None)
        if expected is not None:
            message.expected_sequence = expected
        self.answer(frames.ERROR, channel, request, message)

    def forget(self, channel: int) -> None:
        """The channel has ended; its number is free."""
        self.channels.pop(channel, None)

    def publish_taken(self, size: int) -> None:
        """Count what waits for its commit; a client beyond its window is not read from until it is back inside."""
        self._unanswered_bytes += size
        if self._unanswered_bytes > self.server.limits.publish_window_bytes:
            self.intake.stop(PUBLISHES)
        if not self._is_held_back and self.server.is_crowded():
            self._is_held_back = True
            self.intake.stop(JOURNAL)
            self.server.hold_back(self._let_in)

    def _let_in(self) -> None:
        """There is room for publishes again."""
        self._is_held_back = False
        self.go_on_reading(JOURNAL)

    def publish_answered(self, size: int) -> None:
        self._unanswered_bytes -= size
        if self.intake.is_stopped and self._unanswered_bytes <= self.server.limits.publish_window_bytes // 2:
            self.go_on_reading(PUBLISHES)

    # For the server

    def shutdown(self) -> None:
        self._stopping = True
        self.fail(0, 0, Unavailable("the broker is stopping: reconnect", ErrorCode.STOPPING))
        self.flush()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def tick(self) -> None:
        now = self.loop.time()
        if self._closing_since:
            if now - self._closing_since > CLOSE_SECONDS:
                self.abort()
            return
        limits = self.server.limits
        if not self._welcomed and now - self._connected > limits.hello_seconds:
            self.give_up(_violation(f"no HELLO within {limits.hello_seconds:.0f} seconds"))
        elif now - self._heard > limits.idle_seconds_max and not self.intake.waits_for_the_broker:
            self.give_up(_violation(f"nothing was heard for {limits.idle_seconds_max} seconds: send PING"))
        elif self._gate is not None:
            self._gate.tick()

    def flush(self) -> None:
        self._dirty = False
        transport = self._transport
        if transport is None or self._closing_since or transport.is_closing():
            # Nothing may follow the goodbye: what the journal still answers has nobody to go to.
            self._speaking.clear()
            self._out.clear()
            self._out_bytes = 0
            return
        if self._speaking:
            self._dirty = True  # what is emitted here is written below: no need to be listed for it
            speaking, self._speaking = self._speaking, []
            for channel in speaking:
                channel.emit()
            self._dirty = False
        if self._out:
            out, self._out = self._out, []
            if self._out_bytes <= _JOINED_WRITE_BYTES:
                transport.write(b"".join(out))
            else:
                transport.writelines(out)
            self._out_bytes = 0
        if self._is_full and not self._paused:
            self._is_full = False
            self._tell_room()
        if self._stopping and not self._closing_since and not self._unanswered_bytes and not self._requests:
            self._close(transport)

    # For the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.intake.open(transport)
        if self._gate is not None:
            self._gate.opened(transport)
        transport.set_write_buffer_limits(high=self.server.limits.write_buffer_bytes)
        self.server.connections.opened(self)

    def get_buffer(self, size_hint: int) -> memoryview:
        return self._frames.room()

    def buffer_updated(self, size: int) -> None:
        self._take(None, size)

    def data_received(self, data: bytes) -> None:
        """Take the first bytes, which told what the connection speaks; the event loop calls the two above."""
        self._take(data, 0)

    def _take(self, data: bytes | None, size: int) -> None:
        """Handle these bytes, or as many as the event loop put where it was told to."""
        if self._closing_since:
            return
        self._heard = self.loop.time()
        self._reading = True
        try:
            for frame in self._frames.received(size) if data is None else self._frames.receive(data):
                self._handle(frame)
        except DanubeError as error:
            self.give_up(error)
        except Exception:
            self._give_up_by_bug()
        self.server.write_pass.before_write()
        self._reading = False
        self.flush()
        transport = self._transport
        # Deliveries wait for who does not read, answers cannot: what asks for more of them is not read either.
        unread = transport.get_write_buffer_size() if self._paused and transport is not None else 0
        if unread > self.server.limits.answers_bytes_max:
            self.intake.stop(ANSWERS)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = self._is_full = False
        self.go_on_reading(ANSWERS)
        self._tell_room()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.server.connections.lost(self)
        if self._gate is not None:
            self._gate.lost()
        for task in list(self._requests.values()):
            task.cancel()
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.lost()
        self._on_lost()

    # Frames

    def _handle(self, frame: Frame) -> None:
        gate = self._gate
        if not self._welcomed:
            self._welcome(frame)
        elif gate is None or (not gate.must_wait(frame) and gate.permits(frame)):
            self._lead(frame)

    def _lead(self, frame: Frame) -> None:
        """Lead a frame that may be handled to where that is done."""
        kind = frame.kind
        if kind == frames.PUBLISH:
            channel = self.channels.get(frame.channel)
            if isinstance(channel, ProducerChannel):
                channel.publish(frame)
            else:
                self.server.publish_calls.errors += 1
                self.fail(frame.channel, frame.request, no_channel(frame, "producer"))
        elif kind in (frames.CREDIT, frames.ACK, frames.NACK):
            self._handle_flow(frame)
        elif kind == frames.PING:
            if len(frame.body) > frames.PING_BYTES_MAX:
                raise _violation(f"a PING of {len(frame.body)} bytes, {frames.PING_BYTES_MAX} at most")
            self.write(frames.PONG, 0, frame.request, [frame.body], len(frame.body))
        elif kind == frames.PONG:
            pass  # hearing it was all that mattered
        elif kind == frames.LOOKUP:
            self._look_up(frame)
        elif kind == frames.OPEN_PRODUCER:
            self._open(frame, open_producer(self, frame))
        elif kind == frames.SUBSCRIBE:
            self._open(frame, subscribe(self, frame))
        elif kind == frames.OPEN_READER:
            self._open(frame, open_reader(self, frame))
        elif kind == frames.SEEK:
            self._run(frame, seek(self, frame))
        elif kind == frames.CLOSE:
            self._run(frame, close_channel(self, frame))
        else:
            raise _violation(f"frame type {kind} is not for a client to send")

    def _handle_flow(self, frame: Frame) -> None:
        """Credit and acks. A channel that has just been ended by the broker is no fault of the client."""
        channel = self.channels.get(frame.channel)
        if frame.kind == frames.CREDIT:
            messages, size = decode_credit(frame.body)
            if isinstance(channel, DeliveryChannel):
                channel.add_credit(messages, size)
            return
        if frame.kind == frames.ACK:
            ranges = decode_ranges(frame.body)
            if isinstance(channel, ConsumerChannel):
                for first, last in ranges:
                    channel.subscription.ack(first, last)
        else:
            request = parse(pb.Nack, frame.body)
            if len(request.ranges) > RANGES_MAX:
                raise _violation(f"a NACK of {len(request.ranges)} ranges, {RANGES_MAX} at most")
            reason = request.reason if request.HasField("reason") else None
            for named in request.ranges:
                check_range(named.first, named.last)
                if isinstance(channel, ConsumerChannel):
                    channel.subscription.nack(
                        named.first, named.last, delay_ms=request.delay_ms, reason=reason
                    )
        if frame.request:
            if isinstance(channel, ConsumerChannel):
                self.answer(frames.ACKED, frame.channel, frame.request)
            else:
                self.fail(frame.channel, frame.request, no_channel(frame, "consumer"))

    def _welcome(self, frame: Frame) -> None:
        if frame.kind != frames.HELLO:
            raise _violation(f"the first frame is HELLO, not type {frame.kind}")
        hello = parse(pb.Hello, frame.body)
        if not hello.version_min <= frames.VERSION <= hello.version_max:
            raise Rejected(
                f"the client speaks versions {hello.version_min} to {hello.version_max} of the native protocol, this "
                f"broker speaks {frames.VERSION}",
                ErrorCode.PROTOCOL_VIOLATION,
            )
        if self._gate is not None:
            self._gate.welcome(hello.token)
        self._welcomed = True
        self.knows_merged = hello.batch_columns & MERGED_COLUMNS == MERGED_COLUMNS
        self._frames.body_bytes_max = frames.FRAME_BYTES_MAX
        limits = self.server.limits
        self.answer(
            frames.WELCOME,
            0,
            frame.request,
            pb.Welcome(
                version=frames.VERSION,
                broker=self.server.identity,
                frame_bytes_max=frames.FRAME_BYTES_MAX,
                publish_window_bytes=limits.publish_window_bytes,
                channels_max=limits.channels_max,
                idle_seconds_max=limits.idle_seconds_max,
                batch_bytes_max=BATCH_BYTES_MAX,
                batch_messages_max=BATCH_MESSAGES_MAX,
            ),
        )

    # Requests

    def _look_up(self, frame: Frame) -> None:
        with self.server.request_calls:
            try:
                look_up(self, frame)
            except DanubeError as error:
                self.fail(frame.channel, frame.request, error)

    def _open(self, frame: Frame, opening: Coroutine[Any, Any, None]) -> None:
        """Run a request that opens a channel under a number of the client's choice."""
        number = frame.channel
        refusal: DanubeError | None = None
        if number == 0 or number in self.channels or number in self._opening:
            refusal = Conflict(f"channel {number} is in use or reserved: choose another number")
        elif len(self.channels) + len(self._opening) >= self.server.limits.channels_max:
            refusal = Unavailable(
                f"this connection has {self.server.limits.channels_max} channels, as many as it may: close some, or "
                "open another connection",
                ErrorCode.CHANNELS_EXHAUSTED,
            )
        if refusal is not None:
            opening.close()
            self.server.request_calls.errors += 1
            self.fail(number, frame.request, refusal)
            return
        self._opening.add(number)
        self._run(frame, opening)

    def _run(self, frame: Frame, request: Coroutine[Any, Any, None]) -> None:
        if frame.request == 0 or frame.request in self._requests:
            request.close()
            raise _violation(f"request number {frame.request} is reserved or in use")
        if len(self._requests) >= self.server.limits.requests_max:
            request.close()
            raise _violation(f"more than {self.server.limits.requests_max} requests under way")
        task = self.loop.create_task(self._answer_request(frame, request))
        self._requests[frame.request] = task
        tasks = self.server.connections.tasks
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _answer_request(self, frame: Frame, request: Coroutine[Any, Any, None]) -> None:
        try:
            with self.server.request_calls:
                await request
        except DanubeError as error:
            self.fail(frame.channel, frame.request, error)
        except Exception:
            log.exception("a native request failed type=%d", frame.kind)
            self.fail(
                frame.channel,
                frame.request,
                DanubeError("internal error: see the broker's log", ErrorCode.INTERNAL),
            )
        finally:
            request.close()
            if frame.kind in _OPENINGS:
                self._opening.discard(frame.channel)
            self._requests.pop(frame.request, None)
            if self._transport is None:
                # The client went away while its channel was being opened: nobody else will close it.
                channel = self.channels.pop(frame.channel, None)
                if channel is not None:
                    channel.lost()

    # The end

    def give_up(self, error: DanubeError) -> None:
        """Tell the client what is wrong with it and close."""
        self.server.protocol_errors_total += 1
        log.info("native connection closed reason=%s", error.text)
        self.fail(0, 0, error)
        self._reading = False
        self.flush()
        if self._transport is not None and not self._closing_since:
            self._close(self._transport)

    def _give_up_by_bug(self) -> None:
        """To be called while an exception is handled: it is logged here, the client learns no details."""
        log.exception("a native connection failed")
        self.give_up(DanubeError("internal error: see the broker's log", ErrorCode.INTERNAL))

    def _close(self, transport: asyncio.Transport) -> None:
        self._closing_since = self.loop.time()
        if self._paused:
            transport.abort()
        elif transport.can_write_eof():
            # Closing with unread bytes would reset the socket before the peer has read why.
            transport.write_eof()
            self.intake.close()
        else:
            transport.close()
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.lost()

    def _tell_room(self) -> None:
        for channel in list(self.channels.values()):
            channel.room_changed()

    def go_on_reading(self, reason: int) -> None:
        if self.intake.go_on(reason):
            self._heard = self.loop.time()

    def _mark_dirty(self) -> None:
        self._dirty = True
        self.server.write_pass.add(self)


def _violation(text: str) -> Rejected:
    return Rejected(text, ErrorCode.PROTOCOL_VIOLATION)
