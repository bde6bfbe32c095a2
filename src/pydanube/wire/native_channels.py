"""The channels of a native connection: a producer, a consumer, a reader."""

from abc import abstractmethod
from time import monotonic_ns
from typing import TYPE_CHECKING, Final, TypeAlias

from pydanube.broker.batches import batch_part, timed_rows
from pydanube.broker.reader import Reader
from pydanube.broker.sessions import Consumer, Outlet, Producer, Session
from pydanube.broker.subscription import Subscription
from pydanube.kernel.errors import DanubeError
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.batch import is_merged, message_count
from pydanube.protocol.native.bodies import ITEM_HEADER_BYTES, encode_item_header, encode_published
from pydanube.protocol.native.frames import Frame

if TYPE_CHECKING:
    from pydanube.wire.native_connection import NativeConnection

DELIVER_BYTES: Final = 256 * 1024
"""A DELIVER frame is closed once its items are that long."""
WHOLE_BYTES: Final = 4 * 1024
"""A batch up to here goes out whole also if only a few of its messages are meant."""
CREDIT_MAX: Final = 1 << 40
MERGED_SHARE: Final = 4
"""A merged batch has at most this part of what the client wants in its hands, since it may come on top of that."""


class ProducerChannel:
    """Publishes of one producer session; answers collect until the connection writes."""

    def __init__(self, connection: "NativeConnection", number: int, producer: Producer, epoch: int) -> None:
        self.connection: Final = connection
        self.number: Final = number
        self.producer: Final = producer
        self.epoch: Final = epoch
        self._published: list[bytes] = []
        producer.channels += 1

    def publish(self, frame: Frame) -> None:
        """Take one entry; it is answered when its topic says it is safe, or at once with what is wrong."""
        connection = self.connection
        reply = PublishReply(self, frame.request, len(frame.body))
        connection.publish_taken(reply.size)
        try:
            connection.broker.publish_entry(
                self.producer, self.epoch, frame.sequence, frame.body, reply.taken, reply
            )
        except DanubeError as error:
            reply(error)

    def answer(self, reply: "PublishReply") -> None:
        """The publish is as safe as its topic promises."""
        if not self._published:
            self.connection.will_speak(self)
        self._published.append(encode_published(reply.request, reply.count, reply.offset))

    def refuse(self, reply: "PublishReply", error: DanubeError) -> None:
        self.emit()
        self.connection.fail(self.number, reply.request, error)

    def emit(self) -> None:
        """Hand over the answers held back for this tick's write."""
        if self._published:
            body = b"".join(self._published)
            self._published = []
            self.connection.write(frames.PUBLISHED, self.number, 0, [body], len(body))

    def room_changed(self) -> None:
        """Answers are small: they are not held back."""

    def lost(self) -> None:
        """The connection is gone."""
        self.producer.channels -= 1

    async def close(self) -> None:
        """The client closed the channel."""
        self.emit()
        self.lost()
        self.connection.broker.producer_left(self.producer)


class PublishReply:
    """What becomes of one PUBLISH; called once, when its outcome is known."""

    __slots__ = ("_arrived_ns", "channel", "count", "is_done", "is_taken", "offset", "request", "size")

    def __init__(self, channel: ProducerChannel, request: int, size: int) -> None:
        self.channel = channel
        self.request = request
        self.size = size
        self.offset = 0
        self.count = 0
        self.is_taken = False
        self.is_done = False
        self._arrived_ns = monotonic_ns()

    def taken(self, offset: int, count: int) -> None:
        """The publish has these offsets; it is not safe yet, as a rule."""
        self.offset = offset
        self.count = count
        self.is_taken = True
        if self.is_done:  # a non-reliable topic answers at once, before the count is known
            self.channel.answer(self)

    def __call__(self, error: DanubeError | None) -> None:
        channel = self.channel
        calls = channel.connection.server.publish_calls
        topic = channel.producer.topic
        self.is_done = True
        channel.connection.publish_answered(self.size)
        if error is not None:
            calls.errors += 1
            if self.is_taken:
                topic.refused[error.status.name] += 1
            channel.refuse(self, error)
            return
        calls.ok += 1
        topic.send_latency_us.record((monotonic_ns() - self._arrived_ns) // 1_000)
        if self.is_taken:
            channel.answer(self)


class DeliveryChannel(Outlet):
    """A channel that messages are sent through, as far as the client has given credit."""

    def __init__(self, connection: "NativeConnection", number: int, unacked_max: int) -> None:
        self.connection: Final = connection
        self.number: Final = number
        self.takes_batches = True
        self.merged_max = 0
        self.unacked_max = unacked_max
        self._credit = 0
        self._credit_bytes = 0
        self._items: list[bytes] = []
        self._items_bytes = 0
        self._items_messages = 0
        self._is_ended = False

    def add_credit(self, messages: int, size: int) -> None:
        self._credit = min(self._credit + messages, CREDIT_MAX)
        self._credit_bytes = min(self._credit_bytes + size, CREDIT_MAX)
        if self.connection.knows_merged:
            wanted = min(self._credit, self.unacked_max or CREDIT_MAX)
            self.merged_max = max(self.merged_max, wanted // MERGED_SHARE)
        self.look_again()

    def room(self) -> int:
        return max(self._credit, 0) if self.room_bytes() else 0

    def room_bytes(self) -> int:
        return 0 if self._is_ended else min(max(self._credit_bytes, 0), self.connection.room_bytes())

    def send(self, base: int, append_ms: int, skip: int, count: int, attempt: int, body: bytes) -> None:  # noqa: PLR0917
        length = len(body)
        if length > WHOLE_BYTES and body[0] == 0 and 2 * count <= message_count(body):
            # What is left of a batch after acks here and there would cost the whole of it each time.
            body = batch_part(body, skip, count)
            length = len(body)
            base += skip
            skip = 0
        self._credit -= count
        self._credit_bytes -= length
        if not self._items:
            self.connection.will_speak(self)
        elif self._items_bytes + length > DELIVER_BYTES:
            self._emit_items()
        self._items.append(encode_item_header(base, append_ms, skip, count, attempt, length))
        self._items.append(body)
        self._items_bytes += ITEM_HEADER_BYTES + length
        self._items_messages += count
        self.connection.hold(ITEM_HEADER_BYTES + length)

    def end(self, error: DanubeError | None = None) -> None:
        if self._is_ended:
            return
        self._is_ended = True
        # What waits here will be sent again by whoever takes over: it must not leave twice.
        self._drop_items()
        if error is None:
            self.connection.answer(frames.CLOSED, self.number, 0)
        else:
            self.connection.fail(self.number, 0, error)
        self.connection.forget(self.number)

    def emit(self) -> None:
        """Hand over the items held back for this tick's write."""
        if self._items:
            self._emit_items()

    def room_changed(self) -> None:
        if self._credit > 0 and self._credit_bytes > 0:
            self.look_again()

    @abstractmethod
    def look_again(self) -> None:
        """What may be sent has changed: tell who has something to send."""

    @abstractmethod
    def lost(self) -> None:
        """The connection is gone."""

    @abstractmethod
    async def close(self) -> None:
        """The client closed the channel."""

    def _emit_items(self) -> None:
        items, size = self._items, self._items_bytes
        self._forget_items()
        self.connection.write(frames.DELIVER, self.number, 0, items, size)

    def _drop_items(self) -> None:
        """Not to be sent after all: the client never sees them, so they cost it no credit."""
        self._credit += self._items_messages
        self._credit_bytes += self._items_bytes - ITEM_HEADER_BYTES * (len(self._items) // 2)
        self._forget_items()

    def _forget_items(self) -> None:
        self.connection.release(self._items_bytes)
        self._items = []
        self._items_bytes = 0
        self._items_messages = 0


class ConsumerChannel(DeliveryChannel):
    """A consumer of a subscription."""

    def __init__(
        self, connection: "NativeConnection", number: int, consumer: Consumer, unacked_max: int
    ) -> None:
        super().__init__(connection, number, unacked_max)
        self.consumer: Final = consumer
        self.subscription: Final[Subscription] = consumer.subscription
        self.session: Session | None = None

    def send(self, base: int, append_ms: int, skip: int, count: int, attempt: int, body: bytes) -> None:  # noqa: PLR0917
        if self.connection.knows_merged or body[0] != 0 or not is_merged(body):
            super().send(base, append_ms, skip, count, attempt, body)
            return
        # A merged batch that was dispatched to a client that knew such, and has now come to this one.
        topic = str(self.subscription.topic_name)
        rows = timed_rows(body, topic, skip, count, append_ms)
        for number, (row, row_ms) in enumerate(rows, base + skip):
            super().send(number, row_ms, 0, 1, attempt, row)

    def look_again(self) -> None:
        if self.session is not None:
            self.connection.broker.stream_drained(self.session)

    def seeked(self, next_offset: int) -> bool:
        self._drop_items()
        message = pb.Seeked(next_offset=next_offset)
        self.connection.answer(frames.SEEKED, self.number, 0, message)
        return True

    def lost(self) -> None:
        self._is_ended = True
        if self.session is not None:
            self.connection.broker.stream_lost(self.session)

    async def close(self) -> None:
        self.lost()
        self._drop_items()
        await self.connection.broker.leave(self.consumer)


class ReaderChannel(DeliveryChannel):
    """A reader of a range."""

    def __init__(self, connection: "NativeConnection", number: int) -> None:
        super().__init__(connection, number, 0)
        self.reader: Reader | None = None

    def look_again(self) -> None:
        if self.reader is not None:
            self.reader.drained()

    def seeked(self, next_offset: int) -> bool:
        raise AssertionError("a reader has no subscription that could be moved")

    def end(self, error: DanubeError | None = None) -> None:
        if error is None:
            self.emit()  # everything up to the end belongs to the client
        super().end(error)

    def lost(self) -> None:
        self._is_ended = True
        if self.reader is not None:
            self.reader.close()

    async def close(self) -> None:
        self._drop_items()
        self.lost()


Channel: TypeAlias = ProducerChannel | DeliveryChannel
