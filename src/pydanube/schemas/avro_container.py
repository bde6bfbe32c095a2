"""Checks of Avro object container files: a header with the writer's schema, then blocks of data."""

import zlib
from collections.abc import Callable

from pydanube.schemas.avro_datum import BadDatum, Walk, Work, compile_walk, read_long
from pydanube.schemas.avro_types import Map, Primitive

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
# Of all blocks together: a compressed payload must not grow in memory without a bound.
UNPACKED_BYTES_MAX = 16 * 1024 * 1024

_walk_header = compile_walk(Map(Primitive("bytes")))


def check_container(data: bytes, walk_for: Callable[[bytes], Walk]) -> None:
    """Raise `BadDatum` unless this is a whole container with at least one datum.

    Args:
        data: the payload, magic included.
        walk_for: the walk for data of the schema in the header; raises `BadDatum` if it may not be used.
    """
    header_end = _walk_header(data, len(MAGIC), Work(len(data)))
    metadata = _read_metadata(data, len(MAGIC), header_end)
    codec = metadata.get(b"avro.codec", b"null")
    if codec not in (b"null", b"deflate"):
        raise BadDatum(f"a container with codec {codec[:32]!r}: only null and deflate are checked")
    walk = walk_for(metadata.get(b"avro.schema", b""))
    at = header_end + SYNC_BYTES
    sync = data[header_end:at]
    if len(sync) < SYNC_BYTES:
        raise BadDatum("the container ends inside its header")
    count = 0
    unpacked_left = UNPACKED_BYTES_MAX
    while at < len(data):
        items, at = read_long(data, at)
        size, at = read_long(data, at)
        block = data[at : at + size] if items >= 0 and size >= 0 else b""
        at += size
        if len(block) != size or data[at : at + SYNC_BYTES] != sync:
            raise BadDatum(f"the block before byte {at} is cut off or not followed by the sync marker")
        at += SYNC_BYTES
        if codec == b"deflate":
            block = _inflated(block, unpacked_left)
        unpacked_left -= len(block)
        _check_block(block, items, walk)
        count += items
    if count == 0:
        raise BadDatum("the container holds no data")


def _check_block(block: bytes, items: int, walk: Walk) -> None:
    work = Work(len(block))
    work.spend(items)
    at = 0
    for _ in range(items):
        at = walk(block, at, work)
    if at != len(block):
        raise BadDatum(f"{len(block) - at} bytes are left after the {items} data of a block")


def _inflated(block: bytes, bytes_max: int) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        data = inflate.decompress(block, bytes_max + 1)
    except zlib.error as error:
        raise BadDatum("a block of the container is not deflate data") from error
    if len(data) > bytes_max or not inflate.eof:
        raise BadDatum(
            f"a block of the container is cut off or unpacks to more than {UNPACKED_BYTES_MAX} bytes"
        )
    return data


def _read_metadata(data: bytes, at: int, end: int) -> dict[bytes, bytes]:
    """The header's map, known to be well formed."""
    metadata: dict[bytes, bytes] = {}
    while at < end:
        count, at = read_long(data, at)
        if count < 0:
            count = -count
            _, at = read_long(data, at)
        for _ in range(count):
            key, at = _read_bytes(data, at)
            metadata[key], at = _read_bytes(data, at)
    return metadata


def _read_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = read_long(data, at)
    return data[at : at + size], at + size
