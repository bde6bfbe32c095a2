"""Numbers that are handed out once: 1, 2, 3, …"""

from typing import Final

from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.metadata.store import ABSENT, MetadataStore, VersionMismatch

ATTEMPTS_MAX: Final = 100


async def next_id(store: MetadataStore, counter: str, count: int = 1) -> int:
    """Take the next `count` numbers of the counter stored under this key and return the first; that begins at 1."""
    for _ in range(ATTEMPTS_MAX):
        entry = await store.get(counter)
        last = 0 if entry is None else _number(counter, entry.value)
        try:
            await store.put(
                counter, b"%d" % (last + count), expected_version=ABSENT if entry is None else entry.version
            )
        except VersionMismatch:
            continue  # somebody took that number: at least one of us advances each round
        return last + 1
    raise Unavailable(f"counter {counter} is contended: {ATTEMPTS_MAX} attempts lost, try again")


def _number(counter: str, value: bytes) -> int:
    if not value.isdigit():
        raise Corrupt(
            f"counter {counter} holds {value[:40]!r}, not a decimal number", ErrorCode.METADATA_CORRUPT
        )
    return int(value)
