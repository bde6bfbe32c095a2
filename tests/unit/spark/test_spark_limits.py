"""Sharing the limit of a micro-batch among partitions."""

from hypothesis import given
from hypothesis import strategies as st

from pydanube.spark.source.limits import Stretch, share_bytes, share_messages

counts = st.dictionaries(st.text("abc", min_size=1, max_size=2), st.integers(0, 1000), max_size=6)


@given(counts, st.integers(1, 500))
def test_messages_fill_the_limit_exactly_or_take_all(waiting: dict[str, int], most: int) -> None:
    shares = share_messages(waiting, most)
    assert sum(shares.values()) == min(most, sum(waiting.values()))
    assert all(0 <= shares[name] <= waiting[name] for name in waiting)


def test_messages_are_shared_in_proportion() -> None:
    assert share_messages({"a": 900, "b": 100}, 100) == {"a": 90, "b": 10}


def test_bytes_follow_what_each_stretch_has() -> None:
    small, large = Stretch(100, 1_000), Stretch(100, 10_000)
    assert share_bytes({"a": [small, large]}, 6_000) == {"a": 150}
    assert share_bytes({"a": [large], "b": [large]}, 10_000) == {"a": 50, "b": 50}
    assert share_bytes({"a": [small], "b": []}, 10_000) == {"a": 100, "b": 0}


def test_a_message_larger_than_the_limit_is_taken_all_the_same() -> None:
    assert share_bytes({"a": [Stretch(10, 10_000)]}, 10) == {"a": 1}
