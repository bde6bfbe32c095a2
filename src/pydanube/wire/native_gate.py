"""The guard at the native door: who is calling is asked at HELLO, what they may do at each frame that asks for something.

A frame that names a topic is checked on it; a frame of a channel on the topic the channel was opened for, once for each
state of the policies. When these change, channels that would not be opened now are ended, and so is the connection when
its token expires.

Whoever asks for more than their quota of requests hears so, like over gRPC. A frame that wants no answer cannot be refused,
only lost: it waits, and the connection with it.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from google.protobuf.message import DecodeError

from pydanube.kernel.errors import DanubeError
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.frames import Frame
from pydanube.security.operations import OPERATIONS
from pydanube.security.principals import Principal, Verified
from pydanube.wire.gatekeeper import Gatekeeper, expired
from pydanube.wire.intake import QUOTA
from pydanube.wire.native_channels import (
    Channel,
    ConsumerChannel,
    ProducerChannel,
    ReaderChannel,
)

if TYPE_CHECKING:
    from pydanube.wire.native_connection import NativeConnection

_NAMING: Final[Mapping[int, tuple[str, Any]]] = {
    frames.LOOKUP: ("native:lookup", pb.Lookup),
    frames.OPEN_PRODUCER: ("native:open_producer", pb.OpenProducer),
    frames.SUBSCRIBE: ("native:subscribe", pb.Subscribe),
    frames.OPEN_READER: ("native:open_reader", pb.OpenReader),
}
"""Frames whose body names a topic."""
_ON_CHANNEL: Final = {
    frames.PUBLISH: "native:publish",
    frames.CREDIT: "native:credit",
    frames.ACK: "native:ack",
    frames.NACK: "native:nack",
    frames.SEEK: "native:seek",
}
"""Frames that are about what their channel was opened for. Others (PING, CLOSE …) ask for nothing."""
_SETTLING: Final = (frames.ACK, frames.NACK)
_COUNTED: Final = frozenset({*_NAMING, frames.PUBLISH, *_SETTLING, frames.SEEK})
"""Frames that are requests. CREDIT is none: without it, nothing is delivered."""


class NativeGate:
    """The gate of one connection."""

    def __init__(self, keeper: Gatekeeper, connection: "NativeConnection") -> None:
        self._keeper = keeper
        self._guard = keeper.guard
        self._quotas = keeper.guard.quotas
        self._connection = connection
        self._peer = ""
        self._certificate: Principal | None = None
        self._verified: Verified | None = None
        self._revision = keeper.guard.revision
        self._allowed: dict[int, Channel] = {}
        """Channels found to be allowed by the policies of this revision."""
        self._held: deque[Frame] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def opened(self, transport: asyncio.BaseTransport) -> None:
        self._peer, self._certificate = self._keeper.visitor(transport)

    def welcome(self, token: str) -> None:
        """HELLO was heard; Rejected if it does not say who is calling, Unavailable if they are here too often."""
        verified = self._guard.admit(token or None, self._certificate, peer=self._peer)
        if self._quotas is not None:
            self._quotas.connect(verified.principal, self._now_ms())
        self._verified = verified

    def must_wait(self, frame: Frame) -> bool:
        """Whether a quota keeps the frame from being handled now: it will be taken up from here, or has been refused."""
        if self._quotas is None:
            return False
        if frame.kind in _COUNTED and not _wants_no_answer(frame) and not self._counts(frame):
            return True
        if not self._held:
            wait_ms = self._wait_ms(frame)
            if not wait_ms:
                return False
            self._connection.intake.stop(QUOTA)
            self._timer = self._connection.loop.call_later(wait_ms / 1000, self._go_on)
        # What else was read already waits behind the first, so that order is kept; more is not read.
        self._held.append(frame)
        return True

    def permits(self, frame: Frame) -> bool:
        """Whether the frame may be handled; if not, the client has been told."""
        try:
            naming = _NAMING.get(frame.kind)
            if naming is not None:
                self._check(naming[0], _topic_of_body(naming[1], frame.body))
            elif frame.kind in _ON_CHANNEL:
                self._check_channel(frame)
        except DanubeError as error:
            self._refuse(frame, error)
            return False
        return True

    def tick(self) -> None:
        """A second has passed."""
        verified = self._verified
        if verified is None:
            return
        if self._keeper.is_over(verified):
            self._connection.give_up(expired(verified))
            return
        self._follow_policies()
        channels = self._connection.channels
        # A channel may have been opened while its right was taken away; its frames are checked, deliveries here.
        for number, channel in list(channels.items()):
            if _delivers(channel) and self._allowed.get(number) is not channel:
                self._check_delivery(number, channel)
        if len(self._allowed) > len(channels):
            self._allowed = {n: known for n, known in self._allowed.items() if channels.get(n) is known}

    def lost(self) -> None:
        """The connection is gone."""
        self._held.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._quotas is not None and self._verified is not None:
            self._quotas.disconnect(self._verified.principal)
        self._verified = None
        self._allowed = {}

    def _check_channel(self, frame: Frame) -> None:
        if self._revision != self._guard.revision:
            self._follow_policies()
        channel = self._connection.channels.get(frame.channel)
        if channel is None or self._allowed.get(frame.channel) is channel:
            return
        self._check(_ON_CHANNEL[frame.kind], _topic_of(channel))
        self._allowed[frame.channel] = channel

    def _check_delivery(self, number: int, channel: Channel) -> None:
        try:
            self._check("native:credit", _topic_of(channel))
        except DanubeError as error:
            self._revoke(number, error)
        else:
            self._allowed[number] = channel

    def _check(self, operation: str, topic: str) -> None:
        assert self._verified is not None
        resource = OPERATIONS[operation].on(topic)
        self._guard.check(self._verified.principal, operation, resource, peer=self._peer)

    def _follow_policies(self) -> None:
        if self._revision == self._guard.revision:
            return
        self._revision = self._guard.revision
        self._allowed = {}
        for number, channel in list(self._connection.channels.items()):
            # Publishes are refused one by one, as they come: a producer need not be told before.
            if _delivers(channel):
                self._check_delivery(number, channel)

    def _refuse(self, frame: Frame, error: DanubeError) -> None:
        """The request hears why it is not handled; if it is none, its channel ends by it."""
        connection = self._connection
        server = connection.server
        calls = server.publish_calls if frame.kind == frames.PUBLISH else server.request_calls
        calls.errors += 1
        if frame.request:
            connection.fail(frame.channel, frame.request, error)
        else:
            self._revoke(frame.channel, error)

    def _revoke(self, number: int, error: DanubeError) -> None:
        """End a channel over the broker's head: to the broker it is as if the client had gone."""
        channel = self._connection.channels.get(number)
        if channel is not None and _delivers(channel):
            channel.end(error)
            channel.lost()

    def _counts(self, frame: Frame) -> bool:
        """Count a request; False if it is one too many, and refused."""
        assert self._quotas is not None
        assert self._verified is not None
        try:
            self._quotas.request(self._verified.principal, self._now_ms())
        except DanubeError as error:
            self._refuse(frame, error)
            return False
        return True

    def _wait_ms(self, frame: Frame) -> int:
        if self._quotas is None or self._verified is None:
            return 0
        if frame.kind == frames.PUBLISH:
            return self._quotas.publish_wait_ms(self._verified.principal, len(frame.body), self._now_ms())
        if _wants_no_answer(frame):
            return self._quotas.request_wait_ms(self._verified.principal, self._now_ms())
        return 0

    def _go_on(self) -> None:
        """The wait is over for the first of those held, and perhaps for more."""
        self._timer = None
        while self._held:
            wait_ms = self._wait_ms(self._held[0])
            if wait_ms:
                self._timer = self._connection.loop.call_later(wait_ms / 1000, self._go_on)
                return
            self._connection.take_up(self._held.popleft())
        self._connection.go_on_reading(QUOTA)

    def _now_ms(self) -> int:
        return self._keeper.clock.monotonic_ms()


def _topic_of_body(kind: Any, body: bytes) -> str:
    try:
        topic: str = kind.FromString(body).topic
    except DecodeError:
        return ""  # access is checked before form: whoever may do this everywhere hears what is wrong
    return topic


def _wants_no_answer(frame: Frame) -> bool:
    return not frame.request and frame.kind in _SETTLING


def _delivers(channel: Channel) -> TypeGuard[ConsumerChannel | ReaderChannel]:
    # By the classes that have no subclasses: what compiled code thinks of an abstract one, others may not.
    return isinstance(channel, ConsumerChannel | ReaderChannel)


def _topic_of(channel: Channel) -> str:
    if isinstance(channel, ProducerChannel):
        return channel.producer.topic.text
    if isinstance(channel, ConsumerChannel):
        return str(channel.subscription.topic_name)
    if isinstance(channel, ReaderChannel) and channel.reader is not None:
        return channel.reader.topic
    return ""
