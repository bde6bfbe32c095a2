"""Publishing to a topic or to its partitions."""

import time
from collections.abc import Mapping
from types import TracebackType

from pydanube.client.grpc.client import Client
from pydanube.client.grpc.errors import CallFailed
from pydanube.client.grpc.session import Session
from pydanube.client.routing import partition_name, partition_of_key
from pydanube.protocol import danube_pb2 as pb


class Producer:
    """Publishes to a topic, which it creates if it has to; with `partitions`, to that many partitions of it."""

    def __init__(
        self,
        client: Client,
        topic: str,
        *,
        name: str,
        partitions: int = 0,
        reliable: bool = False,
        schema_ref: pb.SchemaReference | None = None,
    ) -> None:
        targets = {topic: name}
        if partitions:
            targets = {partition_name(topic, n): f"{name}-{n}" for n in range(partitions)}
        dispatch = pb.Reliable if reliable else pb.NonReliable
        self._sessions = [
            _ProducerSession(
                client,
                pb.ProducerRequest(
                    topic_name=target,
                    producer_name=own_name,
                    schema_ref=schema_ref,
                    dispatch_strategy=dispatch,
                ),
            )
            for target, own_name in targets.items()
        ]
        self._next_turn = 0

    async def __aenter__(self) -> "Producer":
        try:
            for session in self._sessions:
                await session.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(
        self,
        payload: bytes,
        *,
        attributes: Mapping[str, str] | None = None,
        routing_key: str | None = None,
        schema_id: int | None = None,
        schema_version: int | None = None,
    ) -> int:
        """Publish and return the message's number within its session.

        Messages with one `routing_key` go to one partition; without a key, partitions take turns. The schema is what
        the registry knows the payload's form by.

        Raises:
            CallFailed: the broker refused, or could not be reached through all retries; in the latter
                case the message may have been taken all the same.
        """
        message = pb.StreamMessage(
            payload=payload,
            attributes=attributes or {},
            routing_key=routing_key,
            schema_id=schema_id,
            schema_version=schema_version,
        )
        return await self._choose(routing_key).send(message)

    async def close(self) -> None:
        for session in self._sessions:
            await session.close()

    def _choose(self, routing_key: str | None) -> "_ProducerSession":
        if routing_key is not None:
            return self._sessions[partition_of_key(routing_key, len(self._sessions))]
        session = self._sessions[self._next_turn]
        self._next_turn = (self._next_turn + 1) % len(self._sessions)
        return session


class _ProducerSession(Session):
    kind = pb.HealthCheckRequest.Producer

    def __init__(self, client: Client, request: pb.ProducerRequest) -> None:
        super().__init__(client, request.topic_name)
        self._request = request
        self._sent = 0

    async def _register(self) -> int:
        self._request.request_id += 1
        method = "/danube.ProducerService/CreateProducer"
        return (await self.client.call(self.endpoint, method, self._request, pb.ProducerResponse)).producer_id

    async def send(self, message: pb.StreamMessage) -> int:
        """Publish the message under this session's name, now; returns its number."""
        if self.is_stale:
            await self.register()
        self._sent += 1
        message.request_id = self._sent
        message.publish_time = time.time_ns() // 1_000_000
        message.producer_name = self._request.producer_name
        try:
            await self._send(message)
        except CallFailed as error:
            if not error.retryable:
                raise
            # Perhaps the topic moved: find it again, and give it one more round.
            await self.register()
            await self._send(message)
        return message.request_id

    async def _send(self, message: pb.StreamMessage) -> None:
        message.msg_id.CopyFrom(
            pb.MsgID(producer_id=self.id, topic_name=self.topic, broker_addr=self.endpoint.broker_url)
        )
        method = "/danube.ProducerService/SendMessage"
        await self.client.retries.run(
            lambda: self.client.call(self.endpoint, method, message, pb.MessageResponse)
        )
