"""Key filters: globs over the bytes of the whole key."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.dispatch.key_filter import KeyFilters, glob_matches


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("", "", True),
        ("", "a", False),
        ("*", "", True),
        ("*", "anything", True),
        ("?", "", False),
        ("?", "a", True),
        ("?", "ä", False),  # two bytes
        ("??", "ä", True),
        ("eu-*", "eu-", True),
        ("eu-*", "EU-1", False),
        ("eu-*", "xeu-1", False),
        ("*-1", "eu-1", True),
        ("*-1", "eu-1-2", False),
        ("*aab", "aaab", True),  # has to go back to the star
        ("a*b*c", "aXbYbZc", True),
        ("a*b*c", "aXbYbZ", False),
        ("[ab]", "a", False),
        ("[ab]", "[ab]", True),
        ("a.c", "abc", False),
        ("a\\*", "a\\x", True),  # no escapes
    ],
)
def test_globs(pattern: str, key: str, matches: bool) -> None:
    assert KeyFilters([pattern]).accept(key) is matches
    assert KeyFilters([pattern]).accept(key.encode()) is matches


def test_no_filter_accepts_everything_and_several_are_alternatives() -> None:
    assert KeyFilters([]).accept("x")
    assert KeyFilters(["a", "x*"]).accept("xyz")
    assert not KeyFilters(["a", "b"]).accept("xyz")


@given(pattern=st.text("ab*?", max_size=8), key=st.text("ab", max_size=12))
def test_globs_agree_with_a_regular_expression(pattern: str, key: str) -> None:
    expression = re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)
    assert glob_matches(pattern.encode(), key.encode()) is bool(expression.fullmatch(key))


def test_a_hostile_pattern_is_decided_quickly() -> None:
    # Backtracking over every star would take longer than the universe has existed.
    assert not glob_matches(b"*a" * 50 + b"b", b"a" * 2_000)
