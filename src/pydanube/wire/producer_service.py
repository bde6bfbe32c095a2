"""danube.ProducerService: creating producers, and the hot call of the whole broker, SendMessage."""

from time import monotonic_ns

from pydanube.broker.broker import Broker
from pydanube.broker.topic import Topic
from pydanube.kernel.errors import DanubeError
from pydanube.protocol.danube_pb2 import ProducerAccessMode, ProducerRequest, ProducerResponse
from pydanube.protocol.http2.headers import Headers
from pydanube.protocol.messages import PublishScan, encode_request_id, scan_publish
from pydanube.wire.calls import CallCounts, parse
from pydanube.wire.grpc_connection import GrpcConnection


class ProducerService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.create_calls = CallCounts()
        self.send_calls = CallCounts()

    async def create_producer(self, body: bytes, headers: Headers) -> bytes:
        with self.create_calls:
            request = parse(ProducerRequest, body)
            producer = await self._broker.create_producer(
                topic_name=request.topic_name,
                producer_name=request.producer_name,
                dispatch=request.dispatch_strategy,
                exclusive=request.producer_access_mode == ProducerAccessMode.Exclusive,
                subject=request.schema_ref.subject or None,
            )
            return ProducerResponse(
                request_id=request.request_id, producer_id=producer.id, producer_name=producer.name
            ).SerializeToString()

    def send_message(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        """One message: checked here, answered when its topic says it is safe."""
        try:
            scan = scan_publish(body)
        except DanubeError:
            self.send_calls.errors += 1
            raise
        self.send_scanned(connection, stream_id, body, scan)

    def send_scanned(
        self, connection: GrpcConnection, stream_id: int, body: bytes, scan: PublishScan
    ) -> None:
        """The same, for whoever had to look into the message before."""
        try:
            reply = SendReply(self, connection, stream_id, scan.request_id)
            reply.topic = self._broker.publish(scan, body, reply)
        except DanubeError:
            self.send_calls.errors += 1
            raise


class SendReply:
    """Answers one SendMessage once its outcome is known."""

    __slots__ = ("_arrived_ns", "_connection", "_request_id", "_service", "_stream_id", "topic")

    def __init__(
        self, service: ProducerService, connection: GrpcConnection, stream_id: int, request_id: int
    ) -> None:
        self._service = service
        self._connection = connection
        self._stream_id = stream_id
        self._request_id = request_id
        self._arrived_ns = monotonic_ns()
        self.topic: Topic | None = None
        """Set when the message was taken and its outcome comes later."""

    def __call__(self, error: DanubeError | None) -> None:
        if error is not None:
            self._service.send_calls.errors += 1
            if self.topic is not None:
                self.topic.refused[error.status.name] += 1
            self._connection.fail(self._stream_id, error)
            return
        self._service.send_calls.ok += 1
        if self.topic is not None:
            self.topic.send_latency_us.record((monotonic_ns() - self._arrived_ns) // 1_000)
        self._connection.reply(self._stream_id, encode_request_id(self._request_id))
