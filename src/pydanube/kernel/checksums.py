"""CRC-32C of bytes that are not looked at again: what is known of the parts is enough for the whole.

A checksum is the remainder of a division of polynomials, so bytes that follow only multiply what came before by a power
of x. Bit 31 of a number stands for x to the power 0 here, bit 30 for x, as in the checksums themselves.
"""

from functools import lru_cache
from typing import Final

_POLYNOMIAL: Final = 0x82F6_3B78
_ONE: Final = 1 << 31
_BYTE: Final = 1 << 23
"""x to the power 8: one byte more."""


def joined_crc32c(first: int, second: int, second_bytes: int) -> int:
    """The checksum of some bytes followed by `second_bytes` others, from the checksums of both."""
    return _product(_power(second_bytes), first) ^ second


@lru_cache(maxsize=256)
def _power(size: int) -> int:
    """What so many bytes more multiply a checksum by. Most batches of a producer are of one size, hence the cache."""
    power = _ONE
    for number in range(size.bit_length()):
        if size >> number & 1:
            power = _product(_DOUBLINGS[number], power)
    return power


def _product(left: int, right: int) -> int:
    """Of two polynomials, modulo that of the checksum."""
    product = 0
    while left:
        if left & _ONE:
            product ^= right
            left ^= _ONE
        left <<= 1
        right = right >> 1 ^ _POLYNOMIAL if right & 1 else right >> 1
    return product


def _doublings() -> list[int]:
    """What 1, 2, 4, 8 … bytes more multiply a checksum by, as many as an entry's length has bits."""
    doublings = [_BYTE]
    for _ in range(31):
        doublings.append(_product(doublings[-1], doublings[-1]))
    return doublings


_DOUBLINGS: Final = _doublings()
