"""danube.ConsumerService: subscribing, the stream of messages, acks and nacks."""

from pydanube.broker.batches import batch_rows
from pydanube.broker.broker import Broker
from pydanube.broker.sessions import Outlet, Session
from pydanube.kernel.errors import DanubeError
from pydanube.protocol.danube_pb2 import ConsumerRequest, ConsumerResponse, NackRequest, ReceiveRequest
from pydanube.protocol.http2.headers import Headers
from pydanube.protocol.messages import encode_request_id, offset_suffix, scan_ack
from pydanube.protocol.native.bodies import NO_OFFSET
from pydanube.wire.calls import CallCounts, parse
from pydanube.wire.grpc_connection import GrpcConnection

NO_BYTE_LIMIT = 1 << 62
"""HTTP/2 windows bound what a stream takes; `room` knows them."""


class ConsumerService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.subscribe_calls = CallCounts()
        self.receive_calls = CallCounts()
        self.ack_calls = CallCounts()
        self.nack_calls = CallCounts()

    async def subscribe(self, body: bytes, headers: Headers) -> bytes:
        with self.subscribe_calls:
            request = parse(ConsumerRequest, body)
            consumer = await self._broker.subscribe(
                topic_name=request.topic_name,
                subscription_name=request.subscription,
                consumer_name=request.consumer_name,
                kind=request.subscription_type,
                key_filters=tuple(request.key_filters),
            )
            return ConsumerResponse(
                request_id=request.request_id, consumer_id=consumer.id, consumer_name=consumer.name
            ).SerializeToString()

    def receive_messages(
        self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers
    ) -> None:
        """Open a consumer's stream; an unknown consumer is refused before any response header is sent."""
        with self.receive_calls:
            request = parse(ReceiveRequest, body)
            stream = ConsumerStream(self._broker, connection, stream_id)
            stream.session = self._broker.receive(request.consumer_id, stream)
            # Headers go out at once: clients wait for them, holding the lock their acks need.
            connection.start(stream_id)
            connection.on_closed(stream_id, stream.closed)
            connection.on_drained(stream_id, stream.drained)

    def ack(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        with self.ack_calls:
            scan = scan_ack(body)
            self._broker.ack(scan)
            connection.reply(stream_id, encode_request_id(scan.request_id))

    def nack(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        with self.nack_calls:
            request = parse(NackRequest, body)
            self._broker.nack(
                scan_ack(body),
                delay_ms=request.delay_ms,
                reason=request.reason if request.HasField("reason") else None,
            )
            connection.reply(stream_id, encode_request_id(request.request_id))


class ConsumerStream(Outlet):
    """The outlet of one ReceiveMessages call."""

    __slots__ = ("_broker", "_connection", "_is_ended", "_stream_id", "session")

    def __init__(self, broker: Broker, connection: GrpcConnection, stream_id: int) -> None:
        self._broker = broker
        self._connection = connection
        self._stream_id = stream_id
        self._is_ended = False
        self.session: Session | None = None

    def room(self) -> int:
        return self._connection.room(self._stream_id)

    def room_bytes(self) -> int:
        return NO_BYTE_LIMIT

    def send(self, base: int, append_ms: int, skip: int, count: int, attempt: int, body: bytes) -> None:  # noqa: PLR0917
        if body[0] != 0:
            suffix = offset_suffix(base) if base != NO_OFFSET else b""
            self._connection.send(self._stream_id, body, suffix)
            return
        # A batch that was dispatched whole to a client that took batches, and has now come to this one.
        assert self.session is not None
        topic = str(self.session.consumer.subscription.topic_name)
        for number, row in enumerate(batch_rows(body, topic, skip, count), base + skip):
            self._connection.send(self._stream_id, row, offset_suffix(number))

    def seeked(self, next_offset: int) -> bool:
        return False

    def end(self, error: DanubeError | None = None) -> None:
        if not self._is_ended:
            self._is_ended = True
            # What waits here will be sent again by whoever takes over: it must not leave twice.
            self._connection.cut(self._stream_id, error)

    def closed(self) -> None:
        """The client cancelled, or its connection is gone."""
        self._is_ended = True
        if self.session is not None:
            self._broker.stream_lost(self.session)

    def drained(self) -> None:
        if self.session is not None:
            self._broker.stream_drained(self.session)
