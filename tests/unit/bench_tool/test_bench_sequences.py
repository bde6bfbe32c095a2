"""What a reader says about what it received."""

from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from pydanube.bench.payloads import numbered, pool
from pydanube.bench.sequences import SequenceCheck, Verdict


def test_everything_once_in_order_is_right() -> None:
    check = SequenceCheck(10)
    check.receive_run(0, 0, 4)
    check.receive(0, [4, 5])
    assert not check.is_complete
    check.receive_run(0, 6, 4)
    assert check.is_complete
    assert check.verdict() == Verdict()
    assert check.verdict().total == 0


def test_a_hole_is_lost() -> None:
    check = SequenceCheck(10)
    check.receive_run(0, 0, 4)
    check.receive_run(0, 6, 4)
    assert check.verdict() == Verdict(lost=2)
    assert check.verdict().text == "2 lost"


def test_what_comes_twice_is_duplicated_and_completes_nothing() -> None:
    check = SequenceCheck(6)
    check.receive_run(0, 0, 4)
    check.receive_run(0, 2, 2)
    assert not check.is_complete
    assert check.verdict() == Verdict(lost=2, duplicated=2)


def test_what_comes_late_is_out_of_order() -> None:
    check = SequenceCheck(4)
    check.receive(0, [0, 2, 1, 3])
    assert check.verdict() == Verdict(out_of_order=1)


def test_consumers_of_one_subscription_have_an_order_each() -> None:
    check = SequenceCheck(4)
    check.receive(0, [1, 3])
    check.receive(1, [0, 2])
    assert check.verdict() == Verdict()


def test_a_number_nobody_sent_is_foreign() -> None:
    check = SequenceCheck(2)
    check.receive_run(0, 0, 5)
    assert check.verdict() == Verdict(foreign=3)


def test_messages_without_numbers_are_counted() -> None:
    check = SequenceCheck(5)
    check.receive_unnumbered(3)
    assert check.verdict() == Verdict(lost=2)
    check.receive_unnumbered(3)
    assert check.is_complete
    assert check.verdict() == Verdict(duplicated=1)


def test_of_a_topic_that_holds_more_the_rest_is_not_wrong() -> None:
    check = SequenceCheck(5, is_all=False)
    check.receive_unnumbered(3)
    check.receive_unnumbered(3)
    assert check.is_complete
    assert check.verdict().total == 0


def test_changed_bytes_are_found() -> None:
    sent = b"".join(numbered(pool(size=20, seed=1), first=0, count=3))
    right, wrong = (SequenceCheck(3, checksum=crc32c(sent)) for _ in range(2))
    for check, received in ((right, sent), (wrong, sent.replace(b"=", b"-", 1))):
        assert received is sent or received != sent
        check.receive_bytes(received[:25])
        check.receive_bytes(received[25:])
        check.receive_run(0, 0, 3)
    assert right.verdict() == Verdict()
    assert wrong.verdict() == Verdict(corrupt=1)


@given(st.lists(st.integers(-2, 12)), st.integers(1, 4))
def test_runs_are_a_shorter_way_to_say_the_same(numbers: list[int], run: int) -> None:
    by_run, one_by_one = SequenceCheck(10), SequenceCheck(10)
    for first in numbers:
        by_run.receive_run(0, first, run)
        one_by_one.receive(0, range(first, first + run))
    assert by_run.verdict() == one_by_one.verdict()


def test_numbered_payloads_carry_their_number_and_differ_by_seed_only() -> None:
    payloads = list(numbered(pool(size=16, seed=3), first=5, count=3))
    assert [int.from_bytes(payload[:8], "little") for payload in payloads] == [5, 6, 7]
    assert {len(payload) for payload in payloads} == {16}
    assert payloads == list(numbered(pool(size=16, seed=3), first=5, count=3))
    assert payloads != list(numbered(pool(size=16, seed=4), first=5, count=3))
    assert list(numbered(pool(size=3, seed=3), first=0, count=2)) == pool(size=3, seed=3)[:2]
    assert pool(size=0, seed=0)[0] == b""
