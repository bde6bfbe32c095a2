"""Every setting of a broker, its default and its range: the keys of the configuration file.

`config_file.py` reads them from YAML, environment and flags; `listeners.py` makes addresses of them.
`deploy/danube.yml` shows every key with its default.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from pydanube.kernel.policies import FsyncPolicy, Policies, Retention
from pydanube.security.settings import SecuritySettings
from pydanube.server.listeners import Listeners
from pydanube.stores.settings import DurableSettings

MEBIBYTE = 1 << 20
YEAR_MINUTES = 366 * 24 * 60

Port = Annotated[int, Meta(ge=0, le=65535)]
Text = Annotated[str, Meta(min_length=1)]


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block of the file: unknown keys are refused, every key has a default unless said otherwise."""


class Ports(Section, frozen=True):
    """A port 0 is chosen by the system."""

    client: Port = 6650
    """For clients, by gRPC and the native protocol."""
    admin: Port = 50051
    """For the administration commands and tools."""
    prometheus: Port | None = 9040
    """null: no metrics endpoint."""


class AdvertisedListeners(Section, frozen=True):
    """What clients are told to dial, if that is not where the broker listens. Both keys are required."""

    broker_url: Text
    """Names the broker."""
    connect_url: Text
    """Is dialled; another than `broker_url` means through a proxy."""


class BrokerSection(Section, frozen=True):
    host: Text = "127.0.0.1"
    """IP literal all ports listen on."""
    ports: Ports = Ports()
    advertised_listeners: AdvertisedListeners | None = None
    """null: clients are told where the broker listens."""


class MetaStore(Section, frozen=True):
    backend: Literal["sqlite", "memory"] = "sqlite"
    """Where topics, cursors and policies are kept; `memory` forgets them at stop, for tests."""
    data_dir: Text = "danube-data"
    """Folder of everything this broker keeps."""


class Dispatch(Section, frozen=True):
    max_unacked_messages: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Messages of one subscription delivered but not acknowledged yet."""


class RetentionSection(Section, frozen=True):
    """Whichever comes first deletes the oldest segments; `kernel.policies.Retention` is the same without units."""

    time_minutes: Annotated[int, Meta(ge=1)] | None = None
    """Older than this; null: whatever its age."""
    size_mb: Annotated[int, Meta(ge=1)] | None = None
    """More of a topic than this; null: whatever its size."""
    until_consumed: bool = False
    """Also what every subscription has acknowledged."""
    drop_unconsumed: bool = False
    """Let `time_minutes` and `size_mb` delete what some subscription has not consumed."""

    def as_policy(self) -> Retention:
        return Retention(
            time_minutes=self.time_minutes,
            size_mb=self.size_mb,
            until_consumed=self.until_consumed,
            drop_unconsumed=self.drop_unconsumed,
        )


class LocalRetention(RetentionSection, frozen=True):
    """Mode local: when history is deleted. Other modes: when local copies of what is in the durable store are."""

    time_minutes: Annotated[int, Meta(ge=1)] | None = 2880
    size_mb: Annotated[int, Meta(ge=1)] | None = 20480
    check_interval_minutes: Annotated[int, Meta(ge=1, le=YEAR_MINUTES)] = 5
    """How often what is too old or too much is looked for."""


class Segments(Section, frozen=True):
    """How history becomes Parquet segments in the durable store."""

    size_mb: Annotated[int, Meta(ge=1, le=4096)] = 128
    """Messages are merged into segments of about this size, before compression."""
    age_seconds: Annotated[int, Meta(ge=1, le=86_400)] = 300
    """Messages are in a segment about this long after they came, however few there are."""
    waiting_mb_max: Annotated[int, Meta(ge=1)] = 10_240
    """Local disk for messages that are in no segment yet; beyond it publishes are refused. From half of it on, making segments
    has the priority of publishing."""
    uploads_max: Annotated[int, Meta(ge=1, le=64)] = 4
    """Segments made and stored at the same time."""
    read_cache_mb: Annotated[int, Meta(ge=16)] = 64
    """Memory for segments that consumers far behind are reading."""


class Rotation(Section, frozen=True):
    max_bytes: Annotated[int, Meta(ge=MEBIBYTE, le=4096 * MEBIBYTE)] = 64 * MEBIBYTE
    """Size of one journal file."""


class Wal(Section, frozen=True):
    rotation: Rotation = Rotation()
    fsync: FsyncPolicy = FsyncPolicy.ALWAYS
    """When a publish is acknowledged: synced to disk, synced within the interval, or left to the operating system."""
    fsync_interval_ms: Annotated[int, Meta(ge=1, le=60_000)] = 1000
    """With `fsync` interval: how much a power cut may take."""
    topic_fsync: dict[Text, FsyncPolicy] = {}
    """Topic name or pattern (`/logs/*`) to policy; the first that matches wins over `fsync`."""
    unstaged_bytes_max: Annotated[int, Meta(ge=MEBIBYTE)] = 256 * MEBIBYTE
    """Memory for messages that are in the journal only; beyond it publishes are refused."""
    cache_bytes_max: Annotated[int, Meta(ge=0)] = 64 * MEBIBYTE
    """Memory for recent messages that are on disk already."""


class Storage(Section, frozen=True):
    mode: Literal["local", "shared_fs", "object_store"] = "local"
    """Where history is: on this disk, in a shared directory, in a bucket; docs/storage.md."""
    local_wal_root: Text | None = None
    """Folder of the journal, and in mode local of all history; null: `wal` below `meta_store.data_dir`."""
    durable: DurableSettings | None = None
    """Where segments are in the modes shared_fs and object_store."""
    segments: Segments = Segments()
    local_retention: LocalRetention = LocalRetention()
    retention: RetentionSection | None = None
    """Modes shared_fs and object_store: when history is deleted; null: never."""
    topic_retention: dict[Text, RetentionSection] = {}
    """Topic name or pattern (`/logs/*`) to policy; the first that matches wins over the general one."""
    wal: Wal = Wal()


class Limits(Section, frozen=True):
    max_connections: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    """Client connections at a time; more are refused."""
    max_streams_per_connection: Annotated[int, Meta(ge=100, le=1_000_000)] = 4096
    """gRPC calls of one connection at a time."""
    max_queued_bytes_per_connection: Annotated[int, Meta(ge=8 * MEBIBYTE)] = 64 * MEBIBYTE
    """Memory for responses that a slow client has not taken yet."""


class Settings(Section, frozen=True):
    """The whole file."""

    cluster_name: Text = "STANDALONE"
    """What a message calls this cluster by, such as one about a durable store that belongs to another."""
    broker: BrokerSection = BrokerSection()
    meta_store: MetaStore = MetaStore()
    bootstrap_namespaces: tuple[Text, ...] = ()
    """Namespaces made at start beside `default` and `system`."""
    auto_create_topics: bool = True
    """Whether a producer may make its topic; consumers never do."""
    admin_tls: bool = False
    """Mode tls: the admin port by TLS too; in mode mtls it is in any case."""
    auth: SecuritySettings = SecuritySettings()
    dispatch: Dispatch = Dispatch()
    policies: Policies = Policies()
    storage: Storage = Storage()
    limits: Limits = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """What a broker is started with: the settings, and what follows from them."""

    settings: Settings
    listeners: Listeners
    warnings: tuple[str, ...] = ()
    """Things that work but are probably not meant; to be logged at start."""

    @property
    def data_dir(self) -> Path:
        return Path(self.settings.meta_store.data_dir)

    @property
    def metadata_path(self) -> Path:
        """The database of the sqlite back end."""
        return self.data_dir / "metadata.sqlite3"

    @property
    def wal_root(self) -> Path:
        root = self.settings.storage.local_wal_root
        return self.data_dir / "wal" if root is None else Path(root)

    @property
    def spool(self) -> Path:
        """Segments on their way into the durable store."""
        return self.wal_root / "spool"
