"""danube.Discovery: where a topic is served, and which partitions it has."""

from dataclasses import dataclass

from pydanube.broker.broker import Broker
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import TopicLookupRequest, TopicLookupResponse, TopicPartitionsResponse
from pydanube.protocol.http2.headers import Headers
from pydanube.wire.calls import parse
from pydanube.wire.grpc_connection import GrpcConnection


@dataclass(frozen=True, slots=True)
class Advertised:
    """How clients reach this broker; the two differ behind a proxy."""

    broker_url: str
    connect_url: str

    @property
    def is_proxied(self) -> bool:
        return self.broker_url != self.connect_url


class DiscoveryService:
    def __init__(self, broker: Broker, advertised: Advertised) -> None:
        self._broker = broker
        self.advertised = advertised

    def topic_lookup(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        request = parse(TopicLookupRequest, body)
        if not self._broker.serves(request.topic):
            raise Rejected(f"topic {request.topic} not found", ErrorCode.TOPIC_UNKNOWN)
        response = TopicLookupResponse(
            request_id=request.request_id,
            response_type=TopicLookupResponse.LookupType.Connect,
            connect_url=self.advertised.connect_url,
            broker_url=self.advertised.broker_url,
            proxy=self.advertised.is_proxied,
        )
        connection.reply(stream_id, response.SerializeToString())

    def topic_partitions(
        self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers
    ) -> None:
        request = parse(TopicLookupRequest, body)
        response = TopicPartitionsResponse(
            request_id=request.request_id, partitions=self._broker.partitions(request.topic)
        )
        connection.reply(stream_id, response.SerializeToString())
