"""What is read out of Arrow columns."""

import pyarrow as pa
import pytest

from pydanube.bench.columns import payload_bytes, stamps_of

PAYLOADS = [number.to_bytes(8, "little") + b"tail%d" % number for number in range(5)]


@pytest.mark.parametrize(("first", "count"), [(0, 5), (1, 3), (4, 1), (2, 0)])
def test_a_slice_is_read_as_if_it_were_the_whole(first: int, count: int) -> None:
    column = pa.array(PAYLOADS, pa.binary()).slice(first, count)
    assert bytes(payload_bytes(column)) == b"".join(PAYLOADS[first : first + count])
    assert list(stamps_of(column)) == list(range(first, first + count))


@pytest.mark.parametrize("stamps", [[5, 5, 5], [3, 1, 2], [2**64 - 1, 0], [7]])
def test_stamps_may_be_any_numbers(stamps: list[int]) -> None:
    column = pa.array([stamp.to_bytes(8, "little") for stamp in stamps], pa.binary())
    assert list(stamps_of(column)) == stamps


def test_consecutive_stamps_are_a_range() -> None:
    assert stamps_of(pa.array(PAYLOADS, pa.binary())) == range(5)


def test_empty_payloads_have_no_bytes() -> None:
    assert bytes(payload_bytes(pa.array([b"", b""], pa.binary()))) == b""
    assert bytes(payload_bytes(pa.array([], pa.binary()))) == b""
