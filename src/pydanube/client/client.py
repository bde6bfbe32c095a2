"""The way in: a client of one cluster, which makes producers, consumers and readers."""

from collections.abc import Sequence
from functools import partial
from types import TracebackType

from pydanube.client.address import Address
from pydanube.client.cluster import Cluster, Location
from pydanube.client.connection import Dialling
from pydanube.client.consumer import AnyType, Consumer
from pydanube.client.credit import PREFETCH_ALONE
from pydanube.client.history import History
from pydanube.client.options import Batching, ProducerOptions
from pydanube.client.position import AnyPosition
from pydanube.client.producer import Producer
from pydanube.client.reader import Reader
from pydanube.client.registry_channel import RegistryChannel
from pydanube.client.retries import Retries
from pydanube.client.schema_records import AnySchema, SchemaRef
from pydanube.client.schemas import Schemas
from pydanube.client.tls import TLS, Token
from pydanube.client.unary_channel import UnaryChannel
from pydanube.kernel.errors import Rejected


def connect(
    url: str,
    *,
    token: Token | None = None,
    tls: TLS | None = None,
    timeout: float = 30.0,
    retries: Retries | None = None,
) -> "Client":
    """A client of the cluster the broker at `url` belongs to.

    async with connect("danube://127.0.0.1:6650") as client:
        async with client.producer("/default/orders") as producer:
            await producer.send(b"one", key="customer-1")
        async with client.consumer("/default/orders", subscription="billing", start="earliest") as consumer:
            async for message in consumer:
                await consumer.ack(message)

    Args:
        url: danube://host:port, danubes:// for TLS; http://, https:// and host:port are taken as well.
        token: presented to every broker; a function is asked for a fresh one whenever a connection is made.
        tls: which certificates to trust and to show; turns TLS on for an address that does not say.
        timeout: seconds to wait for any single answer.
        retries: how often and how long to try again what may pass.
    """
    return Client(url, token=token, tls=tls, timeout=timeout, retries=retries)


class Client:
    """Producers, consumers and readers of one client share its connections, one to each broker."""

    def __init__(
        self,
        url: str,
        *,
        token: Token | None,
        tls: TLS | None,
        timeout: float,
        retries: Retries | None,
    ) -> None:
        if not timeout > 0:
            raise Rejected(f"invalid timeout {timeout}: expected seconds, more than 0")
        seed = Address.parse(url)
        if tls is not None:
            seed = Address(seed.host, seed.port, tls=True)
        context = (tls or TLS()).context() if seed.tls else None
        self._cluster = Cluster(seed, Dialling(timeout, token, context), retries or Retries())
        self._calls = UnaryChannel(seed, token=token, tls=tls, timeout=timeout)
        self.schemas = Schemas(RegistryChannel(self._cluster, self._calls))
        """The schema registry."""
        self.history = History(self._calls)
        """Where stored messages are."""

    async def __aenter__(self) -> "Client":
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect, so that a wrong address or token shows at once."""
        try:
            await self._cluster.with_retries(lambda: self._cluster.connection(self._cluster.seed))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close all connections. Close producers and consumers first: they have something to say before."""
        await self.schemas.close()
        await self._calls.close()
        await self._cluster.close()

    def producer(
        self,
        topic: str,
        *,
        name: str | None = None,
        reliable: bool = True,
        idempotent: bool | None = None,
        exclusive: bool = False,
        batching: Batching | None = None,
        max_pending_bytes: int = 16 * 1024 * 1024,
        schema: AnySchema | None = None,
        schema_subject: str | None = None,
        partitions: int | None = None,
    ) -> Producer:
        """A producer of a topic, to be used with `async with`.

        Args:
            topic: /namespace/topic; it is created if the broker allows that.
            name: identifies the producer, also after a restart; a new one is made up if there is none.
            reliable: for a topic that keeps messages until they are acknowledged; False for one that does not.
            idempotent: repeat lost publishes without ever storing one twice; on reliable topics unless it is False.
            exclusive: be the only producer.
            batching: when collected messages leave.
            max_pending_bytes: how much may be unanswered; senders wait beyond that.
            schema: schema of the messages, a subject or a SchemaRef: the topic is bound to the subject if it is to
                none, and every message that names no other schema names this one.
            schema_subject: binds the topic in the same way, and leaves it to the messages to name a schema.
            partitions: publish to that many partitions; without it, to those the topic has.
        """
        reference = SchemaRef(schema) if isinstance(schema, str) else schema
        options = ProducerOptions(
            reliable=reliable,
            idempotent=reliable if idempotent is None else idempotent,
            exclusive=exclusive,
            batching=batching or Batching(),
            schema_subject=schema_subject if reference is None else reference.subject,
        )
        return Producer(
            self._cluster,
            topic,
            name=name,
            options=options,
            max_pending_bytes=max_pending_bytes,
            partitions=partitions,
            schema=None if reference is None else partial(self.schemas.resolve, reference),
        )

    def consumer(
        self,
        topic: str,
        *,
        subscription: str,
        type: AnyType = "shared",  # noqa: A002
        name: str | None = None,
        start: AnyPosition = "latest",
        key_filters: Sequence[str] = (),
        prefetch_messages: int | None = None,
        prefetch_bytes: int = 8 * 1024 * 1024,
        unacked_max: int = 50_000,
        schema: AnySchema | None = None,
    ) -> Consumer:
        """A consumer of a subscription, to be used with `async with`.

        Args:
            topic: /namespace/topic; all its partitions, if it has some.
            subscription: its name; it is made if it does not exist.
            type: how consumers share: exclusive, shared, failover or key_shared.
            name: identifies the consumer; a new one is made up if there is none.
            start: where a subscription begins that does not exist yet.
            key_filters: of a key_shared subscription, patterns of the keys to get.
            prefetch_messages: how many messages may wait here for the application to take them; 10,000 where consumers
                share the messages, 50,000 where one of them gets all.
            prefetch_bytes: how many bytes.
            unacked_max: how many messages may be delivered and neither acked nor nacked.
            schema: the version `decode` reads with, a subject or a SchemaRef, whatever messages were written with;
                without one, each is read with its own.
        """
        return Consumer(
            self._cluster,
            topic,
            subscription=subscription,
            type=type,
            name=name,
            start=start,
            key_filters=key_filters,
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
            unacked_max=unacked_max,
            decoder=partial(self.schemas.decoder, topic, schema),
        )

    def reader(
        self,
        topic: str,
        *,
        start: AnyPosition = "earliest",
        end: AnyPosition | None = None,
        prefetch_messages: int = PREFETCH_ALONE,
        prefetch_bytes: int = 8 * 1024 * 1024,
        schema: AnySchema | None = None,
    ) -> Reader:
        """A reader of everything from `start` to before `end`, without a subscription; without `end` it goes on.

        `schema` is the version `decode` reads with, as for a consumer.
        """
        return Reader(
            self._cluster,
            topic,
            start=start,
            end=end,
            prefetch_messages=prefetch_messages,
            prefetch_bytes=prefetch_bytes,
            decoder=partial(self.schemas.decoder, topic, schema),
        )

    async def lookup(self, topic: str) -> Location:
        """Which broker serves the topic, and its partitions."""
        return await self._cluster.with_retries(lambda: self._cluster.locate(topic))

    async def partitions(self, topic: str) -> list[str]:
        """The partitions of a topic, or its own name if it has none; empty if the broker does not know it."""
        return list((await self.lookup(topic)).partitions)
