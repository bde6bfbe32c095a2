"""Bytes that are filled after they were made."""

import gc

import pytest

from pydanube.kernel.unfilled import SIZE_MIN, unfilled_bytes


@pytest.mark.parametrize("size", [SIZE_MIN, 3, 4096, 1_000_003])
def test_what_is_written_to_the_view_is_in_the_bytes(size: int) -> None:
    expected = bytes(number % 251 for number in range(size))
    data, view = unfilled_bytes(size)
    assert len(data) == len(view) == size
    view[:1] = expected[:1]
    view[1:] = expected[1:]
    del view
    gc.collect()
    assert data == expected
    assert {data: "found"}[expected] == "found"


@pytest.mark.parametrize("size", [-1, 0, 1])
def test_bytes_that_the_interpreter_shares_are_not_given_out(size: int) -> None:
    with pytest.raises(ValueError, match="only 2 or more can"):
        unfilled_bytes(size)
