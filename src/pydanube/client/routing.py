"""Which partition a message goes to."""

from typing import Final

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3
_64_BITS: Final = (1 << 64) - 1


def fnv1a_64(data: bytes) -> int:
    """The 64-bit FNV-1a hash: all clients route keys by it, so a key meets the same partition everywhere."""
    value = _FNV_OFFSET
    for byte in data:
        value = ((value ^ byte) * _FNV_PRIME) & _64_BITS
    return value


def partition_of_key(routing_key: str, partitions: int) -> int:
    return fnv1a_64(routing_key.encode()) % partitions


def partition_name(topic: str, number: int) -> str:
    return f"{topic}-part-{number}"
