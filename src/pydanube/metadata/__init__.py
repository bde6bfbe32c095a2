"""The metadata store: topics, owners, cursors, segments, schemas, policies as small consistent facts.

May import kernel and protocol. Start reading at `store.py`, the contract; back ends are `memory.py`
and `sqlite.py`, over `command_store.py`, which holds what they share.
"""

from pydanube.metadata.counters import next_id
from pydanube.metadata.memory import MemoryStore
from pydanube.metadata.sqlite import SqliteStore
from pydanube.metadata.store import (
    ABSENT,
    ROOT,
    Change,
    Compare,
    Delete,
    Entry,
    HistoryLost,
    Lease,
    LeaseId,
    LeaseUnknown,
    MetadataStore,
    Put,
    VersionMismatch,
    Write,
)

__all__ = [
    "ABSENT",
    "ROOT",
    "Change",
    "Compare",
    "Delete",
    "Entry",
    "HistoryLost",
    "Lease",
    "LeaseId",
    "LeaseUnknown",
    "MemoryStore",
    "MetadataStore",
    "Put",
    "SqliteStore",
    "VersionMismatch",
    "Write",
    "next_id",
]
