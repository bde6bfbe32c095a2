"""gRPC calls of one request and one response, on the port clients know."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from pydanube.client.address import Address
from pydanube.client.tls import TLS, Token, current
from pydanube.kernel.errors import Rejected, Status

if TYPE_CHECKING:
    import grpc

Response = TypeVar("Response", bound=Message)


class CallFailed(Exception):
    """The broker answered with a status that is not OK; what it means depends on the service."""

    def __init__(self, what: str, status: Status, details: str) -> None:
        super().__init__(f"{what}: {details or status.name}")
        self.status: Final = status


class UnaryChannel:
    """Dials with the first call: who makes none never loads gRPC."""

    def __init__(self, address: Address, *, token: Token | None, tls: TLS | None, timeout: float) -> None:
        self._address = address
        self._token = token
        self._tls = tls
        self._timeout = timeout
        self._channel: grpc.aio.Channel | None = None

    async def call(self, service: str, method: str, request: Message, response: type[Response]) -> Response:
        """Ask the broker.

        Raises:
            CallFailed: it did not answer, or not with what was asked for.
        """
        import grpc  # noqa: PLC0415 - slow to load

        if self._channel is None:
            self._channel = self._dial()
        invoke: Any = self._channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        token = current(self._token)
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        try:
            answer: Response = await invoke(request, metadata=metadata, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise CallFailed(
                f"{self._address}: {method}", Status(error.code().value[0]), error.details() or ""
            ) from error
        return answer

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _dial(self) -> "grpc.aio.Channel":
        import grpc  # noqa: PLC0415

        # Proxies of the environment are for the web, not for brokers.
        options = [("grpc.enable_http_proxy", 0)]
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        target = f"{host}:{self._address.port}"
        if not self._address.tls:
            return grpc.aio.insecure_channel(target, options=options)
        tls = self._tls or TLS()
        try:
            credentials = grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), _read(tls.certificate))
        except OSError as error:
            raise Rejected(f"{tls}: these files cannot be used: {error}") from error
        return grpc.aio.secure_channel(target, credentials, options=options)


def _read(path: Any) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
