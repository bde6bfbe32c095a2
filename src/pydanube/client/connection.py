"""One connection to a broker: handshake, requests by number, channels, flow of writes, signs of life."""

import asyncio
import ssl
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

from google.protobuf.message import DecodeError

from pydanube.client.address import Address
from pydanube.client.errors import Disconnected, Refused, Timeout
from pydanube.client.incoming import Delivery, IncomingFrames
from pydanube.client.tls import TLS, Token, current
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.batch import ALL_COLUMNS
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.frames import Frame, frame_header

WRITE_BYTES_MAX: Final = 1024 * 1024
"""Bytes waiting for the socket beyond which publishers wait."""
CLOSE_SECONDS_MAX: Final = 2.0
ENDING_SECONDS_MAX: Final = 10.0
"""How long a broker that announced the end may take to answer what it still has."""
_IDLE_SECONDS_DEFAULT: Final = 60
_REQUEST_NUMBERS: Final = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Dialling:
    """How to reach any broker of the cluster."""

    timeout: float
    token: Token | None = field(repr=False, default=None)
    tls: ssl.SSLContext | None = None
    name: str = "pydanube"


class Channel(Protocol):
    """What a producer, consumer or reader hears from its connection. None of these calls may block."""

    def frame_received(self, frame: Frame) -> None:
        """A frame of this channel that answers no pending `request`."""

    def items_received(self, items: list[Item]) -> None:
        """What a DELIVER frame of this channel brings."""

    def connection_lost(self, error: DanubeError) -> None:
        """Nothing more will come; the channel is gone."""

    def writable(self) -> None:
        """There may be room for the publish that `may_publish` refused."""


class Connection(asyncio.BufferedProtocol):
    """A connection in use. Made by `dial`; all frames of one loop tick leave in one write."""

    def __init__(self, address: Address, dialling: Dialling, loop: asyncio.AbstractEventLoop) -> None:
        self.address: Final = address
        self.welcome = pb.Welcome()
        self._dialling = dialling
        self._loop = loop
        self._incoming = IncomingFrames()
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = loop.create_future()
        self._failure: DanubeError | None = None
        self._ending: DanubeError | None = None
        """The broker has announced the end: nothing new is begun."""
        self._requests: dict[int, _Request] = {}
        self._last_request = 0
        self._channels: dict[int, Channel] = {}
        self._last_channel = 0
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._is_paused = False
        self._publishing_bytes = 0
        self._waiting: dict[Channel, None] = {}
        self._heard = self._said = loop.time()
        self._pinged: float | None = None
        self._ping_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def dial(cls, address: Address, dialling: Dialling) -> "Connection":
        """Connect and be welcomed.

        Raises:
            Unavailable: nobody there, or no answer in time.
            Rejected: the broker, or its certificate, is not one we can go on with.
        """
        loop = asyncio.get_running_loop()
        connection = cls(address, dialling, loop)
        try:
            async with asyncio.timeout(dialling.timeout):
                await loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=(dialling.tls or TLS().context()) if address.tls else None,
                    server_hostname=address.host if address.tls else None,
                )
        except TimeoutError as error:
            raise Timeout(f"{address} did not accept a connection within {dialling.timeout:g} s") from error
        except ssl.SSLCertVerificationError as error:
            raise Rejected(
                f"{address}: its certificate is not trusted ({error.verify_message}): check TLS(ca=…)"
            ) from error
        except OSError as error:
            raise Unavailable(f"{address} cannot be reached: {error}") from error
        try:
            await connection._shake_hands()
        except BaseException:
            connection.abort(Disconnected(f"{address}: the handshake failed"))
            raise
        return connection

    async def _shake_hands(self) -> None:
        hello = pb.Hello(
            version_min=frames.VERSION,
            version_max=frames.VERSION,
            client=self._dialling.name,
            token=current(self._dialling.token),
            batch_columns=ALL_COLUMNS,
        )
        body = await self.request(
            frames.HELLO, hello.SerializeToString(), answer=frames.WELCOME, what=f"greeting {self.address}"
        )
        welcome = pb.Welcome.FromString(body)
        if welcome.version != frames.VERSION:
            raise Rejected(
                f"{self.address} speaks version {welcome.version} of the native protocol, "
                f"this client {frames.VERSION}: update the older of the two",
                ErrorCode.PROTOCOL_VIOLATION,
            )
        self.welcome = welcome
        self._schedule_ping()

    # What channels use

    @property
    def is_open(self) -> bool:
        return self._failure is None and self._ending is None

    def attach(self, channel: Channel) -> int:
        """Give the channel a number; frames of that number are its own until it is detached."""
        self._check_open()
        channels_max = self.welcome.channels_max
        if channels_max and len(self._channels) >= channels_max:
            raise Unavailable(
                f"{self.address}: all {channels_max} channels of the connection are in use: "
                "close producers or consumers, or connect another client",
                ErrorCode.CHANNELS_EXHAUSTED,
            )
        self._last_channel += 1
        self._channels[self._last_channel] = channel
        return self._last_channel

    def _check_open(self) -> None:
        error = self._failure or self._ending
        if error is not None:
            raise error

    def detach(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            self._waiting.pop(channel, None)

    def next_request(self) -> int:
        """A number for a frame that wants an answer."""
        self._last_request = self._last_request % _REQUEST_NUMBERS + 1
        return self._last_request

    async def open_channel(
        self, channel: Channel, kind: int, body: bytes, *, answer: int, what: str
    ) -> tuple[int, bytes]:
        """Open a channel by a request; its number and the body of the answer."""
        number = self.attach(channel)
        try:
            return number, await self.request(kind, body, channel=number, answer=answer, what=what)
        except BaseException as error:
            self.detach(number)
            if not isinstance(error, DanubeError) or isinstance(error, Timeout):
                # The broker may have opened it all the same.
                self.send(frames.CLOSE, number, self.next_request(), b"")
            raise

    async def request(
        self,
        kind: int,
        body: bytes,
        *,
        answer: int,
        what: str,
        channel: int = 0,
        timeout: float | None = None,
    ) -> bytes:
        """Send a frame and return the body of its answer, a frame of kind `answer`.

        Raises:
            Timeout: no answer within `timeout` seconds, or the client's own if that is None.
            Disconnected: the connection was lost on the way.
            DanubeError: the broker refused.
        """
        self._check_open()
        number = self.next_request()
        request = _Request(answer, what, self._loop.create_future())
        self._requests[number] = request
        seconds = self._dialling.timeout if timeout is None else timeout
        try:
            self.send(kind, channel, number, body)
            async with asyncio.timeout(seconds):
                return await request.future
        except TimeoutError as error:
            raise Timeout(f"{what}: {self.address} did not answer within {seconds:g} s") from error
        finally:
            del self._requests[number]

    def send(self, kind: int, channel: int, request: int, body: bytes) -> None:
        self.write(frame_header(kind, channel, request, len(body)), [body], len(body))

    def write(self, header: bytes, parts: list[bytes], size: int) -> None:
        """Put a frame, whose body is these parts of `size` bytes, into this tick's write."""
        outbox = self._outbox
        if not outbox:
            self._loop.call_soon(self._flush)
        outbox.append(header)
        if self.address.tls and len(parts) > 1:
            # Every part would be a TLS record of its own.
            outbox.append(b"".join(parts))
        else:
            outbox += parts
        self._outbox_bytes += len(header) + size

    def may_publish(self, channel: Channel, size: int) -> bool:
        """Whether a body of that size may go now; if not, the channel hears `writable` when to ask again."""
        window = self.welcome.publish_window_bytes
        in_flight = self._publishing_bytes
        fits = in_flight == 0 or window == 0 or in_flight + size <= window
        if fits and not self._is_paused and self._outbox_bytes < WRITE_BYTES_MAX and self._ending is None:
            return True
        self._waiting[channel] = None
        return False

    def publishing(self, size: int) -> None:
        """A publish of that size is on its way."""
        self._publishing_bytes += size

    def published(self, size: int) -> None:
        """It was answered."""
        self._publishing_bytes -= size
        if self._waiting:
            self._wake()

    async def close(self) -> None:
        """Send what is left and close; cut off after a moment if the broker does not take it."""
        if self._failure is None:
            self._flush()
            self._fail(Disconnected(f"{self.address}: the client was closed"))
            if self._transport is not None:
                self._transport.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS_MAX):
                await asyncio.shield(self._closed)
        except TimeoutError:
            if self._transport is not None:
                self._transport.abort()

    def abort(self, error: DanubeError) -> None:
        """Give the connection up at once."""
        self._fail(error)
        if self._transport is not None:
            self._transport.abort()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BYTES_MAX)
        self._transport.write(frames.PREFACE)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._incoming.room()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = self._loop.time()
        try:
            for frame in self._incoming.received(nbytes):
                if isinstance(frame, Delivery):
                    # A channel just closed may still be sent something: that is nobody's any more.
                    if (channel := self._channels.get(frame.channel)) is not None:
                        channel.items_received(frame.items)
                else:
                    self._handle(frame)
        except (Rejected, DecodeError) as error:
            self.abort(Disconnected(f"{self.address} does not keep to the native protocol: {error}"))

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(self._ending or self._cause(exc))
        if not self._closed.done():
            self._closed.set_result(None)

    def _cause(self, exc: Exception | None) -> DanubeError:
        reason = f": {exc}" if exc else ""
        # Under TLS 1.3 a broker looks at our certificate when we think the handshake is over, and may just hang up.
        is_early = self.address.tls and not self.welcome.version
        hint = " (if it wants to see a certificate, give TLS(certificate=…, key=…))" if is_early else ""
        return Disconnected(f"the connection to {self.address} was lost{reason}{hint}")

    def _handle(self, frame: Frame) -> None:
        kind = frame.kind
        channel = self._channels.get(frame.channel)
        if kind == frames.PUBLISHED:
            if channel is not None:
                channel.frame_received(frame)
            return
        if kind == frames.PING:
            self.send(frames.PONG, 0, frame.request, frame.body)
            return
        if kind == frames.PONG:
            self._pinged = None
            return
        request = self._requests.get(frame.request)
        if request is not None:
            request.answered(frame)
        elif channel is not None:
            channel.frame_received(frame)
        elif kind == frames.ERROR and frame.channel == 0 and frame.request == 0:
            self._ending = Refused.decode(frame.body, str(self.address)).error
            # The broker still answers what it has, then closes.
            self._loop.call_later(ENDING_SECONDS_MAX, self.abort, self._ending)

    def _flush(self) -> None:
        if not self._outbox:
            return
        outbox, self._outbox = self._outbox, []
        self._outbox_bytes = 0
        if self._transport is not None and self._failure is None:
            self._said = self._loop.time()
            self._transport.writelines(outbox)
        if not self._is_paused:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for channel in waiting:
            channel.writable()

    def _schedule_ping(self) -> None:
        idle = self.welcome.idle_seconds_max or _IDLE_SECONDS_DEFAULT
        self._ping_timer = self._loop.call_later(idle / 3, self._check_life)

    def _check_life(self) -> None:
        """Ping a connection on which one side was silent; give up one that does not answer."""
        now = self._loop.time()
        idle = (self.welcome.idle_seconds_max or _IDLE_SECONDS_DEFAULT) / 3
        if self._pinged is not None and now - max(self._pinged, self._heard) > self._dialling.timeout:
            self.abort(Disconnected(f"{self.address} has been silent for {self._dialling.timeout:g} s"))
            return
        if self._pinged is None and now - min(self._heard, self._said) >= idle / 2:
            self._pinged = now
            self.send(frames.PING, 0, self.next_request(), b"")
        self._schedule_ping()

    def _fail(self, error: DanubeError) -> None:
        """End every request and channel with the error; the first one counts."""
        if self._failure is not None:
            return
        self._failure = error
        if self._ping_timer is not None:
            self._ping_timer.cancel()
        self._outbox = []
        self._waiting.clear()
        for request in self._requests.values():
            request.failed(error)
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.connection_lost(error)


class _Request:
    """A request under way."""

    __slots__ = ("answer", "future", "what")

    def __init__(self, answer: int, what: str, future: asyncio.Future[bytes]) -> None:
        self.answer = answer
        self.what = what
        self.future = future

    def answered(self, frame: Frame) -> None:
        if frame.kind == frames.ERROR:
            self.failed(Refused.decode(frame.body, self.what).error)
        elif frame.kind != self.answer:
            raise Rejected(f"{self.what} was answered with frame type {frame.kind} instead of {self.answer}")
        elif not self.future.done():
            self.future.set_result(frame.body)

    def failed(self, error: DanubeError) -> None:
        if not self.future.done():
            self.future.set_exception(error)
