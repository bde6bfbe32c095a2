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


def test_empty_payloads_have_no_bytes() -> None:
    assert bytes(payload_bytes(pa.array([b"", b""], pa.binary()))) == b""
    assert bytes(payload_bytes(pa.array([], pa.binary()))) == b""
