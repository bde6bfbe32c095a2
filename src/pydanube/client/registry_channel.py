"""The way to the schema registry, which is spoken to over gRPC on the port clients know."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from pydanube.client.address import Address
from pydanube.client.tls import TLS, Token, current
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Unavailable

if TYPE_CHECKING:
    import grpc

SERVICE: Final = "/danube_schema.SchemaRegistry/"

Response = TypeVar("Response", bound=Message)


class RegistryChannel:
    """Dials with the first call: who uses no schemas never loads gRPC."""

    def __init__(self, address: Address, *, token: Token | None, tls: TLS | None, timeout: float) -> None:
        self._address = address
        self._token = token
        self._tls = tls
        self._timeout = timeout
        self._channel: grpc.aio.Channel | None = None

    async def call(self, method: str, request: Message, response: type[Response]) -> Response:
        """One call of the registry.

        Raises:
            Rejected: the request must change, or names what the registry does not know.
            Unavailable: the registry cannot be reached, or is busy.
        """
        import grpc  # noqa: PLC0415 - slow to load

        if self._channel is None:
            self._channel = self._dial()
        invoke: Any = self._channel.unary_unary(
            SERVICE + method,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        token = current(self._token)
        metadata = [] if token is None else [("authorization", f"Bearer {token}")]
        try:
            answer: Response = await invoke(request, metadata=metadata, timeout=self._timeout)
        except grpc.aio.AioRpcError as error:
            raise _error_of(f"{self._address}: {method}", error.code().name, error.details()) from error
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


def _error_of(what: str, status: str, details: str | None) -> DanubeError:
    text = f"{what}: {details or status}"
    match status:
        case "UNAVAILABLE" | "DEADLINE_EXCEEDED" | "RESOURCE_EXHAUSTED":
            return Unavailable(text, ErrorCode.OVERLOADED)
        case "NOT_FOUND":
            return Rejected(text, ErrorCode.SCHEMA_UNKNOWN)
        case "FAILED_PRECONDITION":
            return Conflict(text, ErrorCode.SUBJECT_UNKNOWN)
        case "INVALID_ARGUMENT":
            return Rejected(text)
        case "PERMISSION_DENIED":
            return Rejected(text, ErrorCode.PERMISSION_DENIED)
        case "UNAUTHENTICATED":
            return Rejected(text, ErrorCode.TOKEN_INVALID)
        case "INTERNAL":
            # What the registry answers to a schema it cannot take.
            return Rejected(text, ErrorCode.SCHEMA_INVALID)
        case _:
            return DanubeError(text)
