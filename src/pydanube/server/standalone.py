"""A whole broker in one process: opened in the order things depend on each other, closed in reverse."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import structlog

from pydanube import __version__
from pydanube.broker.broker import Broker
from pydanube.broker.housekeeping import Housekeeping
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.settings import BrokerSettings
from pydanube.kernel.clock import Clock, Dice
from pydanube.log.journal import Journal
from pydanube.log.settings import JournalSettings
from pydanube.metadata import MemoryStore, MetadataStore, SqliteStore
from pydanube.protocol.http2 import Http2Limits
from pydanube.server.broker_metrics import BrokerMetrics
from pydanube.server.config import ServerConfig, Settings
from pydanube.server.exporter import Exporter
from pydanube.server.process import SystemClock, SystemDice, broker_id, claim
from pydanube.server.progress import RecoveryProgress
from pydanube.wire.connections import WritePass
from pydanube.wire.discovery_service import Advertised
from pydanube.wire.grpc_connection import GrpcServer
from pydanube.wire.listener import Listener, http2_door, native_door, server_tls
from pydanube.wire.native_connection import NativeConnection
from pydanube.wire.native_server import NativeServer
from pydanube.wire.routes import DataPlane

log = structlog.get_logger("pydanube.server")

DRAIN_SECONDS = 5.0
REOPEN_SECONDS = 0.06
"""Between ending the streams and closing the connections. Clients reopen a stream at once: answered "stopping" on a
live connection they back off, 100 ms at least; cut off in that moment, some give up for good."""


class Standalone:
    """A running broker. `start` returns when it serves; `stop` when everything is safely on disk."""

    def __init__(self, config: ServerConfig, *, clock: Clock | None = None, dice: Dice | None = None) -> None:
        self.config = config
        self._clock = clock or SystemClock()
        self._dice = dice or SystemDice()
        self._closing = AsyncExitStack()
        self.client_port = 0

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
        journal = await Journal.open(
            config.wal_root,
            metadata=store,
            clock=self._clock,
            broker_id=str(identity),
            settings=_journal_settings(settings),
            progress=RecoveryProgress(config.wal_root),
        )
        self._closing.push_async_callback(journal.close)

        broker = Broker(
            settings=_broker_settings(settings),
            store=store,
            journal=journal,
            clock=self._clock,
            dice=self._dice,
            subject_exists=_no_registry,
        )
        self._closing.push_async_callback(_close_topics, broker)
        await broker.start()
        self._start_housekeeping(broker, settings)
        await self._open_front_door(broker, journal, identity)

    async def _open_store(self, settings: Settings) -> MetadataStore:
        if settings.meta_store.backend == "memory":
            return MemoryStore(self._clock)
        return await SqliteStore.open(self.config.metadata_path, clock=self._clock)

    def _start_housekeeping(self, broker: Broker, settings: Settings) -> None:
        minutes = settings.storage.local_retention.check_interval_minutes
        housekeeping = Housekeeping(broker, self._clock, retention_check_ms=minutes * 60_000)
        housekeeping.start()
        self._closing.push_async_callback(housekeeping.stop)

    async def _open_front_door(self, broker: Broker, journal: Journal, identity: int) -> None:
        """Bind the ports last: a client that can connect finds every topic served."""
        listeners, settings = self.config.listeners, self.config.settings
        advertised = Advertised(listeners.broker_url, listeners.connect_url)
        services = DataPlane.of(broker, advertised)
        write_pass = WritePass(broker.agenda.run)
        journal.call_after_commit(write_pass.run)
        server = GrpcServer(services.routes(), limits=_http2_limits(settings), write_pass=write_pass)
        native = NativeServer(
            broker,
            advertised,
            identity=f"pydanube {__version__}",
            write_pass=write_pass,
            is_crowded=lambda: journal.is_crowded,
        )
        journal.call_when_roomy(native.let_in)
        listener = Listener(
            [http2_door(server.new_connection), native_door(partial(NativeConnection, native))],
            connections_max=settings.limits.max_connections,
        )

        if listeners.prometheus is not None:
            metrics = BrokerMetrics(
                broker, journal, services=services, server=server, native=native, listener=listener
            )
            exporter = Exporter(listeners.prometheus, metrics, broker_id=str(identity))
            await exporter.start()
            self._closing.push_async_callback(exporter.stop)

        async def close() -> None:
            listener.stop_accepting()
            await broker.stop()
            await asyncio.sleep(REOPEN_SECONDS)
            await asyncio.gather(
                server.connections.drain(DRAIN_SECONDS), native.connections.drain(DRAIN_SECONDS)
            )
            await listener.close()

        self._closing.push_async_callback(close)
        tls = settings.auth.tls if settings.auth.mode == "tls" else None
        context = None if tls is None else server_tls(Path(tls.cert_file), Path(tls.key_file))
        await listener.open(listeners.client.host, listeners.client.port, tls=context)
        self.client_port = listener.port
        bound = listeners.bound_to(listener.port)
        services.discovery.advertised = Advertised(bound.broker_url, bound.connect_url)
        native.advertised = services.discovery.advertised
        log.info(
            "broker ready",
            broker_id=str(identity),
            client=str(bound.client),
            topics=len(broker.topics),
            fsync=settings.storage.wal.fsync.value,
        )


async def _close_topics(broker: Broker) -> None:
    for topic in broker.topics:
        if isinstance(topic, ReliableTopic):
            topic.close()


async def _no_registry(subject: str) -> bool:
    """This release has no schema registry: no subject is registered."""
    return False


def _broker_settings(settings: Settings) -> BrokerSettings:
    wal = settings.storage.wal
    return BrokerSettings(
        auto_create_topics=settings.auto_create_topics,
        bootstrap_namespaces=settings.bootstrap_namespaces,
        policies=settings.policies,
        max_unacked_messages=settings.dispatch.max_unacked_messages,
        retention=settings.storage.local_retention.as_policy(),
        fsync=wal.fsync,
        topic_fsync=tuple(wal.topic_fsync.items()),
    )


def _journal_settings(settings: Settings) -> JournalSettings:
    wal = settings.storage.wal
    return JournalSettings(
        file_bytes=wal.rotation.max_bytes,
        unsealed_bytes_max=wal.unsealed_bytes_max,
        cache_bytes_max=wal.cache_bytes_max,
        sync_interval_ms=wal.fsync_interval_ms,
    )


def _http2_limits(settings: Settings) -> Http2Limits:
    limits = settings.limits
    return Http2Limits(
        concurrent_streams_max=limits.max_streams_per_connection,
        connection_queue_bytes_max=limits.max_queued_bytes_per_connection,
    )
