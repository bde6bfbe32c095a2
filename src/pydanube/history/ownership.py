"""One durable store belongs to one cluster: another's segments must not be taken for orphans and swept."""

import logging

import msgspec

from pydanube.kernel.clock import Dice
from pydanube.kernel.errors import Conflict, Corrupt, ErrorCode, Unavailable
from pydanube.metadata import MetadataStore
from pydanube.metadata.store import ABSENT
from pydanube.stores.store import DurableStore

logger = logging.getLogger("pydanube.history")

OWNER_KEY = "storage/owner.json"
OWNER_BYTES_MAX = 4096
CLUSTER_ID_KEY = "/cluster/id"


class Owner(msgspec.Struct, frozen=True):
    cluster_id: str
    cluster_name: str


async def claim_store(store: DurableStore, owner: Owner, *, is_in_use: bool = False) -> None:
    """Write our name into the store, or find it there; `is_in_use` if segments of ours are in it.

    Raises:
        Conflict: the store is another cluster's.
        Unavailable: the store does not answer, or is empty although it is in use.
    """
    found = await _read(store)
    if found is None and is_in_use:
        raise Unavailable(
            f"{store.place(OWNER_KEY)} is missing, but this broker has segments in that store: mount the file system, or "
            "point storage.durable.root to where they are",
            ErrorCode.STORAGE_FAILED,
        )
    if found is None:
        try:
            await store.put_bytes(OWNER_KEY, msgspec.json.encode(owner))
        except Conflict:
            # Somebody was faster; perhaps it was us, a moment ago, without hearing the answer.
            found = await _read(store)
        else:
            return
    if found is None or found.cluster_id != owner.cluster_id:
        name = "another cluster" if found is None else f"cluster {found.cluster_name!r} ({found.cluster_id})"
        raise Conflict(
            f"{store.place(OWNER_KEY)} says that this store belongs to {name}, not to {owner.cluster_name!r} "
            f"({owner.cluster_id}): give each cluster a root or prefix of its own in storage.durable.root",
            ErrorCode.VERSION_MISMATCH,
        )


async def cluster_id(metadata: MetadataStore, dice: Dice) -> str:
    """The number this cluster gave itself when it first started."""
    entry = await metadata.get(CLUSTER_ID_KEY)
    if entry is None:
        try:
            await metadata.put(CLUSTER_ID_KEY, f"{dice.new_id():016x}".encode(), expected_version=ABSENT)
        except Conflict:
            logger.debug("another broker named the cluster first")
        entry = await metadata.get(CLUSTER_ID_KEY)
        assert entry is not None
    return entry.value.decode()


async def _read(store: DurableStore) -> Owner | None:
    data = await store.read_whole(OWNER_KEY, size_max=OWNER_BYTES_MAX)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Owner)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"{store.place(OWNER_KEY)} does not name an owner: {error}; restore or remove it",
            ErrorCode.SEGMENT_CORRUPT,
        ) from error
