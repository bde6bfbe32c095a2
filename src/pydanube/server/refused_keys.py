"""Keys of the reference broker's file that this release cannot honour, and what to do about each.

Refusing beats ignoring: a broker that starts has done all its file asks for. A value that asks for
nothing (the listed harmless ones, and null) is let through.
"""

from typing import Final

_CLUSTER = "this release runs standalone, one broker: remove the key"

REFUSED: Final[dict[str, tuple[tuple[object, ...], str]]] = {
    "broker.ports.raft": ((), _CLUSTER),
    "load_manager": (({},), _CLUSTER),
    "meta_store.seed_nodes": (([], ""), _CLUSTER),
    "storage.metadata_prefix": ((), "keys in the metadata store cannot be moved: remove the key"),
    "storage.metadata_root": ((), "keys in the metadata store cannot be moved: remove the key"),
    "storage.write_buffer": (
        ({},),
        "not needed: a publish is on disk before it is acknowledged (storage.wal.fsync); remove the key",
    ),
    "storage.wal.dir": ((), "use storage.local_wal_root"),
    "storage.wal.file_name": ((), "journal files are named by the broker: remove the key"),
    "storage.wal.cache_capacity": ((), "the cache is bounded in bytes: use storage.wal.cache_bytes_max"),
    "storage.wal.file_sync": (({},), "use storage.wal.fsync and storage.wal.fsync_interval_ms"),
    "storage.wal.rotation.max_hours": (
        (),
        "journal files are closed by size: use storage.wal.rotation.max_bytes",
    ),
    "storage.wal.advanced": (({},), "use storage.wal.rotation, fsync, fsync_interval_ms and cache_bytes_max"),
}
"""Key path to (harmless values, reason)."""

MOVED: Final[dict[str, str]] = {
    "storage.root": "storage.local_wal_root",
    "storage.cache_root": "storage.local_wal_root",
    "storage.object_store": "storage.durable",
    "storage.wal.retention": "storage.local_retention",
}
"""Other names the reference accepts for a key."""
