"""What commits say about themselves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.errors import Corrupt
from pydanube.spark.lakehouse.commits import Commit, furthest

POSITIONS = st.dictionaries(st.text(min_size=1, max_size=8), st.integers(0, 1 << 62), max_size=3)


@given(POSITIONS, POSITIONS, st.integers(1, 1 << 40), st.integers(0, 99))
def test_properties_bring_the_commit_back(
    start: dict[str, int], end: dict[str, int], number: int, bad: int
) -> None:
    commit = Commit("/default/t", number, "a", start, end, bad, "7", 5)
    assert Commit.of_properties({"added-records": "3", **commit.to_properties()}) == commit


def test_commits_of_others_are_told_apart() -> None:
    assert Commit.of_properties({"operation": "append"}) is None
    broken = {**Commit("/d/t", 1, "a", {}, {}).to_properties(), "danube.end-offsets": "[1]"}
    with pytest.raises(Corrupt, match="roll the table back"):
        Commit.of_properties(broken)


def test_a_commit_counts_its_offsets() -> None:
    commit = Commit("/d/t", 1, "a", {"p": 5, "q": 3}, {"p": 9, "q": 3})
    assert commit.messages == 4
    assert furthest({"p": 1, "q": 9}, {"p": 4}) == {"p": 4, "q": 9}
