"""The connections to a cluster, known by the address of one broker."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message as ProtobufMessage

from pydanube.client.grpc.errors import CallFailed, Retries
from pydanube.client.tls import Token, current
from pydanube.kernel.errors import Rejected, Status
from pydanube.protocol import danube_pb2 as pb

PROXY_HEADER: Final = "x-danube-broker-url"
CALL_SECONDS_MAX: Final = 30.0

Response = TypeVar("Response", bound=ProtobufMessage)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A broker as a lookup tells it: where to dial, and its name if a proxy stands in between."""

    connect_url: str
    broker_url: str
    proxy: bool = False


class Client:
    """Calls brokers; producers and consumers of one client share its channels, one per address.

    async with Client("http://127.0.0.1:6650") as client:
        async with Producer(client, "/default/orders", name="shop", reliable=True) as producer:
            await producer.send(b"one", attributes={"kind": "order"})
        async with Consumer(client, "/default/orders", name="desk", subscription="billing") as consumer:
            async for message in consumer:
                await consumer.ack(message)
    """

    def __init__(
        self,
        url: str,
        *,
        token: Token | None = None,
        ca_certificate: bytes | None = None,
        certificate: bytes | None = None,
        key: bytes | None = None,
        retries: Retries | None = None,
    ) -> None:
        self.seed = _check_url(url)
        self.retries = retries or Retries()
        self._token = token
        self._trust = (ca_certificate, key, certificate)
        """PEM: the authority to trust (None: those gRPC comes with), our own key and certificate."""
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    async def lookup(self, topic: str, known: Endpoint) -> Endpoint:
        """Ask who serves the topic. Not knowing is no failure: the broker known so far is as good a guess."""
        request = pb.TopicLookupRequest(topic=topic)
        try:
            answer = await self.call(known, "/danube.Discovery/TopicLookup", request, pb.TopicLookupResponse)
        except CallFailed:
            return known
        if answer.response_type == pb.TopicLookupResponse.Failed:
            raise CallFailed("TopicLookup", Status.NOT_FOUND, f"the broker cannot tell who serves {topic}")
        return Endpoint(answer.connect_url, answer.broker_url, answer.proxy)

    async def partitions(self, topic: str) -> list[str]:
        """The partitions of a topic, or its own name if it has none; empty if it does not exist."""
        request = pb.TopicLookupRequest(topic=topic)
        method = "/danube.Discovery/TopicPartitions"
        answer = await self.retries.run(
            lambda: self.call(self.seed, method, request, pb.TopicPartitionsResponse)
        )
        return list(answer.partitions)

    async def call(
        self, endpoint: Endpoint, method: str, request: ProtobufMessage, response: type[Response]
    ) -> Response:
        """One request, one response; CallFailed carries the status of anything else."""
        invoke: Any = self._channel(endpoint).unary_unary(
            method, request_serializer=_serialize, response_deserializer=response.FromString
        )
        try:
            answer: Response = await invoke(
                request, metadata=self._metadata(endpoint, method), timeout=CALL_SECONDS_MAX
            )
        except grpc.RpcError as error:
            raise CallFailed.of(method, error) from error
        return answer

    async def stream(
        self, endpoint: Endpoint, method: str, request: ProtobufMessage, response: type[Response]
    ) -> AsyncGenerator[Response, None]:
        """One request, a stream of responses; closing the iterator cancels the call."""
        invoke: Any = self._channel(endpoint).unary_stream(
            method, request_serializer=_serialize, response_deserializer=response.FromString
        )
        call = invoke(request, metadata=self._metadata(endpoint, method))
        try:
            async for answer in call:
                yield answer
        except grpc.RpcError as error:
            raise CallFailed.of(method, error) from error
        finally:
            call.cancel()

    def _channel(self, endpoint: Endpoint) -> grpc.aio.Channel:
        channel = self._channels.get(endpoint.connect_url)
        if channel is None:
            tls, target = _target(endpoint.connect_url)
            # Proxies of the environment are for the web, not for brokers.
            options = [("grpc.enable_http_proxy", 0)]
            if tls:
                credentials = grpc.ssl_channel_credentials(*self._trust)
                channel = grpc.aio.secure_channel(target, credentials, options=options)
            else:
                channel = grpc.aio.insecure_channel(target, options=options)
            self._channels[endpoint.connect_url] = channel
        return channel

    def _metadata(self, endpoint: Endpoint, method: str) -> list[tuple[str, str]]:
        metadata: list[tuple[str, str]] = []
        token = current(self._token)
        if token is not None:
            metadata.append(("authorization", f"Bearer {token}"))
        if endpoint.proxy and not method.startswith("/danube.Discovery/"):
            metadata.append((PROXY_HEADER, endpoint.broker_url))
        return metadata


def _check_url(url: str) -> Endpoint:
    _, target = _target(url)
    if not target or "/" in target or " " in target or not target.rpartition(":")[2].isdigit():
        raise Rejected(
            f"invalid service address {url!r}: expected http://host:port, e.g. http://127.0.0.1:6650"
        )
    return Endpoint(url, url)


def _target(url: str) -> tuple[bool, str]:
    """Whether to use TLS, and the host:port to dial."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return False, url
    return scheme == "https", rest.rstrip("/") if scheme in ("http", "https") else ""


def _serialize(message: ProtobufMessage) -> bytes:
    return message.SerializeToString()
