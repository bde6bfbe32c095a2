"""A cache bounded in number and in weight."""

from pydanube.schemas.recently_used import RecentlyUsed


def cache(**bounds: int) -> RecentlyUsed[str, int]:
    return RecentlyUsed(**{"count_max": 10, "weight_max": 100} | bounds)


def test_what_was_not_asked_for_longest_goes_first() -> None:
    held = cache(count_max=2)
    held.add("a", 1, 1)
    held.add("b", 2, 1)
    assert held.get("a") == 1
    held.add("c", 3, 1)
    assert (held.get("a"), held.get("b"), held.get("c")) == (1, None, 3)


def test_weight_is_bounded_too() -> None:
    held = cache(weight_max=10)
    held.add("a", 1, 6)
    held.add("b", 2, 4)
    assert len(held) == 2
    held.add("c", 3, 5)
    assert (held.get("a"), held.get("b"), held.get("c")) == (None, 2, 3)
    held.add("huge", 4, 11)
    assert (held.get("huge"), len(held)) == (None, 2)


def test_replacing_and_dropping_gives_the_weight_back() -> None:
    held = cache(weight_max=10)
    for value in range(5):
        held.add("a", value, 10)
    assert held.get("a") == 4
    held.drop("a")
    held.drop("absent")
    held.add("b", 1, 5)
    held.add("c", 2, 5)
    held.drop_where(lambda key: key == "b")
    held.add("d", 3, 5)
    assert (held.get("b"), held.get("c"), held.get("d")) == (None, 2, 3)
