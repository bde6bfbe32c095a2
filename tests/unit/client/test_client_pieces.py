"""The parts of the client without I/O: addresses, patience, credit, ranges, and the order and numbers of publishes."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.client import Batching, Position, Rejected, Retries, Unavailable
from pydanube.client.ack_ranges import AckRanges, ranges_of
from pydanube.client.address import Address
from pydanube.client.credit import Credit
from pydanube.client.encoding import Common
from pydanube.client.errors import Refused
from pydanube.client.outgoing import UNTIMED, PayloadRun, Run
from pydanube.client.publish_queue import PublishQueue
from pydanube.client.retries import Patience
from pydanube.kernel.errors import DanubeError, ErrorCode


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("danube://127.0.0.1:6650", Address("127.0.0.1", 6650, tls=False)),
        ("127.0.0.1:1", Address("127.0.0.1", 1, tls=False)),
        ("broker", Address("broker", 6650, tls=False)),
        ("http://broker:7/", Address("broker", 7, tls=False)),
        ("https://broker:7", Address("broker", 7, tls=True)),
        ("danubes://[::1]:9", Address("::1", 9, tls=True)),
        ("danube://[::1]", Address("::1", 6650, tls=False)),
    ],
)
def test_addresses_are_taken_as_people_write_them(url: str, address: Address) -> None:
    assert Address.parse(url) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "url", ["", "ftp://h:1", "h:x", "h:0", "h:70000", "h:1/path", "a b:1", "[::1", "u@h:1"]
)
def test_other_addresses_are_refused(url: str) -> None:
    with pytest.raises(Rejected, match="expected danube://host:port"):
        Address.parse(url)


def test_patience_ends_by_number_and_by_time() -> None:
    by_number = Patience(Retries(attempts_max=2, backoff=1, backoff_max=8))
    assert [by_number.failed(0) is None for _ in range(3)] == [False, False, True]
    by_time = Patience(Retries(attempts_max=99, backoff=1, backoff_max=1, seconds_max=10))
    assert by_time.failed(0) is not None
    assert by_time.failed(9.9) is None
    by_time.succeeded()
    assert by_time.failed(100) is not None


def test_pauses_double_up_to_their_bound() -> None:
    retries = Retries(backoff=1, backoff_max=5)
    assert all(
        0.5 * full <= retries.pause(n) <= full for n, full in [(1, 1), (2, 2), (3, 4), (4, 5), (99, 5)]
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: Retries(attempts_max=-1),
        lambda: Retries(backoff=9, backoff_max=1),
        lambda: Batching(linger_ms=-1),
        lambda: Batching(max_bytes=0),
        lambda: Batching(max_messages=70_000),
        lambda: Batching(compression="gzip"),  # type: ignore[arg-type]
        lambda: Position.offset(-1),
        lambda: Position.timestamp(-1),
    ],
)
def test_settings_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(Rejected):
        make()


@given(st.lists(st.integers(0, 40), max_size=60))
def test_ranges_hold_exactly_what_was_added(offsets: list[int]) -> None:
    ranges = ranges_of(offsets)
    assert sorted(n for first, last in ranges for n in range(first, last + 1)) == sorted(set(offsets))
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))


def test_taking_ranges_leaves_none() -> None:
    ranges = AckRanges()
    ranges.add(1, 5)
    assert ranges
    assert ranges.take() == [(1, 5)]
    assert not ranges
    assert ranges.take() == []


@given(
    st.integers(1, 50),
    st.integers(1, 500),
    st.lists(st.tuples(st.integers(1, 30), st.integers(1, 300)), max_size=60),
)
def test_credit_never_runs_dry_and_never_exceeds_its_bounds_by_more_than_an_entry(
    messages_max: int, bytes_max: int, entries: list[tuple[int, int]]
) -> None:
    credit = Credit(messages_max, bytes_max)
    messages, size = credit.opened()
    held: list[tuple[int, int]] = []
    for count, length in entries:
        while messages <= 0 or size <= 0:
            assert held, "the broker may not send, and the application has nothing to take"
            grant = credit.taken(*held.pop(0))
            if grant is not None:
                messages, size = messages + grant[0], size + grant[1]
        credit.delivered(count, length)
        messages, size = messages - count, size - length
        held.append((count, length))
        assert sum(count for count, _ in held[:-1]) <= messages_max
        assert sum(length for _, length in held[:-1]) <= bytes_max


def test_a_new_channel_is_granted_what_is_not_held() -> None:
    credit = Credit(10, 1000)
    assert credit.opened() == (10, 1000)
    credit.delivered(4, 100)
    assert credit.opened() == (6, 900)
    credit.delivered(6, 2000)
    assert credit.opened() == (0, 0)
    assert credit.taken(4, 100) is None
    assert credit.taken(6, 2000) == (10, 1000)


class Broker:
    """What a broker does with sequences; `moods` decide which publishes it refuses, and when it hangs up."""

    def __init__(self, moods: list[str]) -> None:
        self.moods = moods
        self.last = 0
        self.taken: list[int] = []

    def publish(self, publish: Any, name: int) -> str | int:
        mood = self.moods.pop() if self.moods else "take"
        if publish.sequence + publish.count - 1 <= self.last:
            return "published"
        if publish.sequence != self.last + 1:
            return self.last + 1
        if mood in ("overloaded", "refuse"):
            return mood
        self.last += publish.count
        self.taken.append(name)
        return "published"


def _overloaded() -> DanubeError:
    return Unavailable("overloaded", ErrorCode.OVERLOADED)


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=12),
    st.lists(st.sampled_from(["take", "overloaded", "refuse"]), max_size=20),
    st.lists(st.booleans(), max_size=30),
)
def test_whatever_the_broker_does_nothing_is_doubled_or_reordered(
    counts: list[int], moods: list[str], hang_ups: list[bool]
) -> None:
    broker = Broker(moods)
    queue = PublishQueue("/default/t", idempotent=True)
    assert queue.reopened(0)
    names: dict[Any, int] = {}
    for name, count in enumerate(counts):
        publish = PayloadRun([b"x"] * count, count, Common(0, UNTIMED), None, lambda error: None)
        names[publish] = name
        queue.add(publish)
    failed: list[int] = []
    answered: list[int] = []
    request = 0
    for _ in range(500):
        if queue.is_idle:
            break
        on_the_way = []
        while queue.peek() is not None:
            request += 1
            on_the_way.append(queue.sent(request))
        answers = [(publish, broker.publish(publish, names[publish])) for publish in on_the_way]
        if hang_ups and hang_ups.pop():
            # Some answers arrive, the rest are lost with the connection.
            answers = answers[: len(answers) // 2]
            is_lost = True
        else:
            is_lost = False
        for publish, answer in answers:
            if answer == "published":
                done, overtaken = queue.published(publish.request, publish.count)
                done.succeeded(Run("/default/t", 0, done.count))
                answered.append(names[done])
                assert not overtaken
            else:
                error = Rejected("refused") if answer == "refuse" else _overloaded()
                expected = answer if isinstance(answer, int) else None
                _, over = queue.refused(publish.request, Refused(error, expected))
                failed += [names[publish] for publish, _ in over]
        if is_lost:
            assert queue.lost() == []
            while not queue.reopened(broker.last):
                pass
            assert queue.fatal is None
        elif queue.is_held:
            assert queue.rewind()
    assert queue.is_idle, "the broker has no moods left, so everything must have been answered"
    assert sorted(answered + failed) == list(range(len(counts)))
    assert broker.taken == sorted(broker.taken), "in order"
    assert sorted(broker.taken) == sorted(answered), "each exactly once, and told so"
