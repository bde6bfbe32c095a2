"""The history keeps to its bounds and always knows where it begins."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.metadata.history import History
from pydanube.metadata.store import Change


def change(version: int, size: int = 0) -> Change:
    return Change(f"/k/{version}", bytes(size), version)


@given(sizes=st.lists(st.integers(1, 4), max_size=60), changes_max=st.integers(1, 12))
def test_whatever_is_remembered_is_complete(sizes: list[int], changes_max: int) -> None:
    """Each element is one command of that many changes; below `oldest` nothing is claimed."""
    history = History(0, changes_max=changes_max)
    everything: list[Change] = []
    for version, size in enumerate(sizes, start=1):
        changes = [Change(f"/k/{n}", b"", version) for n in range(size)]
        everything += changes
        history.record(changes, version)
        for since in range(version + 1):
            position = history.position_after(since)
            if position is None:
                assert since < history.oldest
            else:
                assert history.read(position, 1_000) == [c for c in everything if c.version > since]
        readable = history.read(history.position_after(history.oldest) or 0, 1_000)
        assert readable is not None
        assert len(readable) <= changes_max


def test_large_values_push_out_the_oldest() -> None:
    history = History(0, changes_max=1_000, bytes_max=10_000)
    for version in range(1, 11):
        history.record([change(version, size=3_000)], version)
    assert history.oldest == 7
    assert history.position_after(6) is None


def test_a_value_larger_than_the_history_leaves_it_empty_but_honest() -> None:
    history = History(0, bytes_max=100)
    history.record([change(1, size=500)], 1)
    assert history.oldest == 1
    position = history.position_after(1)
    assert position is not None
    assert history.read(position, 10) == []


def test_a_position_that_was_forgotten_is_told() -> None:
    history = History(0, changes_max=2)
    position = history.position_after(0)
    assert position is not None
    for version in range(1, 20):
        history.record([change(version)], version)
    assert history.read(position, 10) is None


@pytest.mark.parametrize("version", [-1, 6])
def test_versions_outside_are_refused(version: int) -> None:
    assert History(5).position_after(version) is None
