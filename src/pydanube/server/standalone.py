"""A whole broker in one process: opened in the order things depend on each other, closed in reverse."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial

import structlog

from pydanube import __version__
from pydanube.broker.administration import Administration
from pydanube.broker.broker import Broker
from pydanube.broker.housekeeping import Housekeeping
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.settings import BrokerSettings
from pydanube.broker.storage_control import StorageControl
from pydanube.history.converter import Converter
from pydanube.history.ownership import Owner, cluster_id
from pydanube.history.tiering import Tiering, TieringSettings
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.policies import Retention
from pydanube.log.journal import Journal
from pydanube.log.settings import JournalSettings
from pydanube.metadata import MemoryStore, MetadataStore, SqliteStore
from pydanube.protocol.http2 import Http2Limits
from pydanube.schemas.registry import SchemaRegistry
from pydanube.server.broker_metrics import BrokerMetrics
from pydanube.server.config import ServerConfig, Settings
from pydanube.server.exporter import Exporter
from pydanube.server.listeners import Address
from pydanube.server.process import SystemClock, SystemDice, broker_id, claim
from pydanube.server.progress import RecoveryProgress
from pydanube.server.security import Security, open_security
from pydanube.stores.directory import DirectoryStore
from pydanube.stores.retrying import Retrying
from pydanube.stores.settings import open_store
from pydanube.stores.store import DurableStore
from pydanube.wire.admin_brokers_service import Registration
from pydanube.wire.connections import WritePass
from pydanube.wire.discovery_service import Advertised
from pydanube.wire.grpc_connection import GrpcServer
from pydanube.wire.grpc_gate import GrpcGate, guarded_routes
from pydanube.wire.listener import Listener, http2_door, native_door
from pydanube.wire.native_connection import NativeConnection
from pydanube.wire.native_gate import NativeGate
from pydanube.wire.native_server import NativeServer
from pydanube.wire.routes import AdminPlane, DataPlane

log = structlog.get_logger("pydanube.server")

DRAIN_SECONDS = 5.0
REOPEN_SECONDS = 0.06
"""Between ending the streams and closing the connections. Clients reopen a stream at once: answered "stopping" on a
live connection they back off, 100 ms at least; cut off in that moment, some give up for good."""

MEBIBYTE = 1 << 20
FOREIGN_ORPHAN_MS_MIN = 60 * 60 * 1000
"""In a store that other brokers write to, an object without a descriptor may be one that is being uploaded."""


class Standalone:
    """A running broker. `start` returns when it serves; `stop` when everything is safely on disk."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        clock: Clock | None = None,
        dice: Dice | None = None,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        """`on_step` is told the name of every durable step on the way of history, for tests that stop there."""
        self.config = config
        self._clock = clock or SystemClock()
        self._dice = dice or SystemDice()
        self._closing = AsyncExitStack()
        self._on_step = on_step
        self.client_port = 0
        self.admin_port = 0

    async def start(self) -> None:
        try:
            await self._open()
        except BaseException:
            await self._closing.aclose()
            raise

    async def stop(self) -> None:
        await self._closing.aclose()

    async def _open(self) -> None:
        config, settings = self.config, self.config.settings
        lock = claim(config.data_dir)
        self._closing.callback(lock.close)
        identity = broker_id(config.data_dir)

        store = await self._open_store(settings)
        self._closing.push_async_callback(store.close)
        segments = _open_durable_store(config, self._dice)
        self._closing.push_async_callback(segments.close)
        journal = await Journal.open(
            config.wal_root / "journal",
            metadata=store,
            store=segments,
            read_cache_bytes_max=settings.storage.segments.read_cache_mb * MEBIBYTE,
            clock=self._clock,
            broker_id=str(identity),
            settings=_journal_settings(settings),
            progress=RecoveryProgress(config.wal_root),
            on_step=self._on_step,
        )
        self._closing.push_async_callback(journal.close)

        registry = SchemaRegistry(store, self._clock)
        self._closing.push_async_callback(_ended, asyncio.create_task(registry.loaded.follow()))
        broker = Broker(
            settings=_broker_settings(settings),
            store=store,
            journal=journal,
            clock=self._clock,
            dice=self._dice,
            registry=registry,
        )
        self._closing.push_async_callback(_close_topics, broker)
        await broker.start()
        self._start_housekeeping(broker, settings)
        converter = Converter()
        self._closing.push_async_callback(converter.close)
        tiering = await self._start_tiering(journal, converter, store)
        storage = StorageControl(
            broker,
            tiering,
            journal,
            converter,
            clock=self._clock,
            dice=self._dice,
            mode=settings.storage.mode,
            spool=config.spool,
            on_step=self._on_step,
        )
        registration = _registration(config, identity)
        security = await open_security(settings, store, self._clock, self._closing)
        administration = Administration.of(broker, store, self._clock)
        self._closing.push_async_callback(administration.topics.stop)
        services = AdminPlane.of(
            administration,
            storage,
            registration=registration,
            schemas=broker.schemas,
            policies=security.policies,
            clock=self._clock,
        )
        await self._open_admin_door(services, security, storage, registration)
        await self._open_front_door(
            broker, journal, tiering, storage, security=security, registration=registration
        )

    async def _open_store(self, settings: Settings) -> MetadataStore:
        if settings.meta_store.backend == "memory":
            return MemoryStore(self._clock)
        return await SqliteStore.open(self.config.metadata_path, clock=self._clock)

    def _start_housekeeping(self, broker: Broker, settings: Settings) -> None:
        minutes = settings.storage.local_retention.check_interval_minutes
        housekeeping = Housekeeping(broker, self._clock, retention_check_ms=minutes * 60_000)
        housekeeping.start()
        self._closing.push_async_callback(housekeeping.stop)

    async def _start_tiering(
        self, journal: Journal, converter: Converter, metadata: MetadataStore
    ) -> Tiering:
        settings = self.config.settings
        tiering = Tiering(
            journal,
            journal.places,
            converter,
            settings=_tiering_settings(settings),
            clock=self._clock,
            spool=self.config.spool,
            owner=Owner(await cluster_id(metadata, self._dice), settings.cluster_name),
            on_step=self._on_step,
        )
        await tiering.start()
        self._closing.push_async_callback(tiering.stop)
        return tiering

    async def _open_admin_door(
        self, services: AdminPlane, security: Security, storage: StorageControl, registration: Registration
    ) -> None:
        address, keeper, routes = self.config.listeners.admin, security.gatekeeper, services.routes()
        if keeper is not None:
            routes = guarded_routes(routes, topic_of_import=storage.topic_of_import)
        server = GrpcServer(
            routes,
            limits=_http2_limits(self.config.settings),
            write_pass=WritePass(lambda: None),
            new_gate=None if keeper is None else partial(GrpcGate, keeper),
        )
        listener = Listener(
            [http2_door(server.new_connection)],
            connections_max=self.config.settings.limits.max_connections,
        )

        async def close() -> None:
            listener.stop_accepting()
            await server.connections.drain(DRAIN_SECONDS)
            await listener.close()

        self._closing.push_async_callback(close)
        await listener.open(address.host, address.port, tls=security.admin_tls)
        self.admin_port = listener.port
        registration.admin_url = registration.admin_url.replace(
            str(address), str(Address(address.host, listener.port))
        )

    async def _open_front_door(
        self,
        broker: Broker,
        journal: Journal,
        tiering: Tiering,
        storage: StorageControl,
        *,
        security: Security,
        registration: Registration,
    ) -> None:
        """Bind the ports last: a client that can connect finds every topic served."""
        listeners, settings = self.config.listeners, self.config.settings
        advertised = Advertised(listeners.broker_url, listeners.connect_url)
        services = DataPlane.of(broker, advertised, storage)
        write_pass = WritePass(broker.agenda.run)
        journal.call_after_commit(write_pass.run)
        keeper, routes = security.gatekeeper, services.routes()
        if keeper is not None:
            routes = guarded_routes(
                routes, producer=services.producer, topic_of_consumer=partial(_topic_of_consumer, broker)
            )
        server = GrpcServer(
            routes,
            limits=_http2_limits(settings),
            write_pass=write_pass,
            new_gate=None if keeper is None else partial(GrpcGate, keeper),
        )
        native = NativeServer(
            broker,
            advertised,
            identity=f"pydanube {__version__}",
            write_pass=write_pass,
            is_crowded=lambda: journal.is_crowded,
            new_gate=None if keeper is None else partial(NativeGate, keeper),
        )
        journal.call_when_roomy(native.let_in)
        listener = Listener(
            [http2_door(server.new_connection), native_door(partial(NativeConnection, native))],
            connections_max=settings.limits.max_connections,
        )

        async def close() -> None:
            listener.stop_accepting()
            await broker.stop()
            await asyncio.sleep(REOPEN_SECONDS)
            await asyncio.gather(
                server.connections.drain(DRAIN_SECONDS), native.connections.drain(DRAIN_SECONDS)
            )
            await listener.close()

        self._closing.push_async_callback(close)
        await listener.open(listeners.client.host, listeners.client.port, tls=security.client_tls)
        self.client_port = listener.port
        bound = listeners.bound_to(listener.port)
        services.discovery.advertised = Advertised(bound.broker_url, bound.connect_url)
        native.advertised = services.discovery.advertised
        registration.broker_url = bound.broker_url
        if listeners.prometheus is not None:
            metrics = BrokerMetrics(
                broker,
                journal,
                tiering,
                services=services,
                server=server,
                native=native,
                listener=listener,
                guard=security.guard,
            )
            exporter = Exporter(
                listeners.prometheus,
                metrics,
                broker_id=str(registration.broker_id),
                tls=security.http_tls,
                new_gate=security.new_metrics_gate,
            )
            await exporter.start()
            self._closing.push_async_callback(exporter.stop)
        log.info(
            "broker ready",
            broker_id=str(registration.broker_id),
            client=str(bound.client),
            topics=len(broker.topics),
            fsync=settings.storage.wal.fsync.value,
        )


def _topic_of_consumer(broker: Broker, consumer_id: int) -> str:
    consumer = broker.consumers.get(consumer_id)
    return "" if consumer is None else str(consumer.subscription.topic_name)


async def _close_topics(broker: Broker) -> None:
    for topic in broker.topics:
        if isinstance(topic, ReliableTopic):
            topic.close()


def _registration(config: ServerConfig, identity: int) -> Registration:
    """As far as it is known before the ports are bound."""
    listeners = config.listeners
    scheme = "http" if config.settings.auth.mode == "none" else "https"
    return Registration(
        broker_id=identity,
        broker_url=listeners.broker_url,
        admin_url=f"{scheme}://{listeners.admin}",
        metrics_addr="" if listeners.prometheus is None else str(listeners.prometheus),
    )


async def _ended(task: "asyncio.Task[None]") -> None:
    """End a task that goes on for ever."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _open_durable_store(config: ServerConfig, dice: Dice) -> DurableStore:
    storage = config.settings.storage
    if storage.mode == "local" or storage.durable is None:
        return DirectoryStore(config.wal_root)
    return Retrying(open_store(storage.durable), dice)


def _tiering_settings(settings: Settings) -> TieringSettings:
    segments, is_local = settings.storage.segments, settings.storage.mode == "local"
    return TieringSettings(
        segment_bytes=segments.size_mb * MEBIBYTE,
        age_ms_max=segments.age_seconds * 1000,
        waiting_bytes_max=segments.waiting_mb_max * MEBIBYTE,
        uploads_max=segments.uploads_max,
        keeps_copies=not is_local,
        orphan_ms_min=0 if is_local else FOREIGN_ORPHAN_MS_MIN,
    )


def _broker_settings(settings: Settings) -> BrokerSettings:
    storage, wal = settings.storage, settings.storage.wal
    local = storage.local_retention.as_policy()
    remote = Retention() if storage.retention is None else storage.retention.as_policy()
    return BrokerSettings(
        auto_create_topics=settings.auto_create_topics,
        bootstrap_namespaces=settings.bootstrap_namespaces,
        policies=settings.policies,
        max_unacked_messages=settings.dispatch.max_unacked_messages,
        retention=local if storage.mode == "local" else remote,
        topic_retention=tuple(
            (pattern, policy.as_policy()) for pattern, policy in storage.topic_retention.items()
        ),
        copies=None if storage.mode == "local" else local,
        fsync=wal.fsync,
        topic_fsync=tuple(wal.topic_fsync.items()),
    )


def _journal_settings(settings: Settings) -> JournalSettings:
    wal = settings.storage.wal
    return JournalSettings(
        file_bytes=wal.rotation.max_bytes,
        unstaged_bytes_max=wal.unstaged_bytes_max,
        cache_bytes_max=wal.cache_bytes_max,
        sync_interval_ms=wal.fsync_interval_ms,
    )


def _http2_limits(settings: Settings) -> Http2Limits:
    limits = settings.limits
    return Http2Limits(
        concurrent_streams_max=limits.max_streams_per_connection,
        connection_queue_bytes_max=limits.max_queued_bytes_per_connection,
    )
