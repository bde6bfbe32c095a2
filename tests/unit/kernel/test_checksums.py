"""Checksums of joined bytes, from those of the parts."""

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.checksums import joined_crc32c


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_the_parts_give_the_checksum_of_the_whole(first: bytes, second: bytes) -> None:
    assert joined_crc32c(crc32c(first), crc32c(second), len(second)) == crc32c(first + second)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 1_000_003])
def test_large_parts_too(size: int) -> None:
    second = bytes(range(251)) * (size // 251 + 1)
    second = second[:size]
    assert joined_crc32c(crc32c(b"before"), crc32c(second), size) == crc32c(b"before" + second)


def test_a_length_that_is_wrong_gives_another_checksum() -> None:
    assert joined_crc32c(crc32c(b"before"), crc32c(b"behind"), 7) != crc32c(b"beforebehind")
