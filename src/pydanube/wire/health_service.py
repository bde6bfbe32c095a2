"""danube.HealthCheck: whether a producer or consumer should go on or come back under a new session."""

from pydanube.broker.broker import Broker
from pydanube.kernel.errors import Rejected
from pydanube.protocol.danube_pb2 import HealthCheckRequest, HealthCheckResponse
from pydanube.protocol.http2.headers import Headers
from pydanube.wire.calls import parse
from pydanube.wire.grpc_connection import GrpcConnection

_OK = HealthCheckResponse(status=HealthCheckResponse.ClientStatus.OK).SerializeToString()
_CLOSE = HealthCheckResponse(status=HealthCheckResponse.ClientStatus.CLOSE).SerializeToString()


class HealthService:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def health_check(self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers) -> None:
        request = parse(HealthCheckRequest, body)
        if request.client == HealthCheckRequest.ClientType.Producer:
            healthy = self._broker.is_producer_healthy(request.id)
        elif request.client == HealthCheckRequest.ClientType.Consumer:
            healthy = self._broker.is_consumer_healthy(request.id)
        else:
            raise Rejected(f"unknown client type {request.client}: 0 is a producer, 1 is a consumer")
        connection.reply(stream_id, _OK if healthy else _CLOSE)
