"""How a plan is shared out, and what it refuses."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.bench.plan import BATCH_BYTES_MAX, Plan, Protocol, Send, dealt
from pydanube.kernel.errors import Rejected


@given(
    count=st.integers(1, 10_000),
    producers=st.integers(1, 40),
    topics=st.integers(1, 40),
    processes=st.integers(1, 8),
)
def test_every_message_is_sent_by_exactly_one_stream(
    count: int, producers: int, topics: int, processes: int
) -> None:
    plan = Plan(run="r", count=count, warmup=7, producers=producers, topics=topics)
    hands = dealt(plan.streams(), processes)
    streams = [stream for hand in hands for stream in hand]
    assert all(hands)
    assert sum(stream.messages for stream in streams) == count
    assert sum(stream.warmup for stream in streams) == 7
    assert {stream.topic for stream in streams} == set(plan.topic_names())
    assert len({stream.producer for stream in streams}) == len(streams) == max(producers, topics)


def test_each_subscription_reads_all_of_its_topic() -> None:
    plan = Plan(run="r", count=10, topics=3, subscriptions=2)
    groups = plan.groups()
    assert [group.messages for group in groups] == [4, 4, 3, 3, 3, 3]
    assert len({(group.topic, group.subscription) for group in groups}) == plan.reading_groups == 6


def test_a_filled_topic_holds_what_its_readers_expect() -> None:
    plan = Plan(run="r", count=10, topics=4, producers=4)
    sent = {stream.topic: stream.messages for stream in plan.streams()}
    assert sent == {group.topic: group.messages for group in plan.groups()}


def test_names_are_of_the_run_unless_a_topic_is_given() -> None:
    assert Plan(run="r1").topic_names() == ["/default/bench-r1"]
    assert Plan(run="r1", topics=2).topic_names() == ["/default/bench-r1-0", "/default/bench-r1-1"]
    assert Plan(run="r1", topic="/a/b").topic_names() == ["/a/b"]


def test_batches_stay_within_the_protocol() -> None:
    assert Plan(run="r", size=128, batch=1000).batch_messages == 1000
    large = Plan(run="r", size=1_000_000, batch=1000)
    assert large.batch_messages == 2
    assert large.batch_bytes <= BATCH_BYTES_MAX
    assert Plan(run="r", size=4_000_000, batch=10).batch_messages == 1


def test_pending_bytes_are_shared_but_leave_room_for_two_batches() -> None:
    plan = Plan(run="r", producers=4, pending_bytes=4_000_000, size=100, batch=10)
    assert plan.pending_bytes_each() == 1_000_000
    assert Plan(run="r", pending_bytes=1, size=100, batch=10).pending_bytes_each() >= 2 * 10 * 100


def test_the_settings_name_everything_but_the_token() -> None:
    settings = Plan(run="r", token="hush", protocol=Protocol.GRPC).settings()
    assert "hush" not in str(settings)
    assert "token" not in settings
    assert settings["protocol"] == "grpc"
    assert settings["size"] == 128
    assert settings["broker"] == "danube://127.0.0.1:6650"
    json.dumps(settings)


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (Plan(run="r", size=-1), "--size -1"),
        (Plan(run="r", size=5_000_000), "--size 5000000"),
        (Plan(run="r", count=0), "--count 0"),
        (Plan(run="r", processes=3, producers=2), "--processes 3 would leave some idle"),
        (Plan(run="r", protocol=Protocol.GRPC, compression="lz4"), "--compression"),
        (Plan(run="r", protocol=Protocol.GRPC, send=Send.MANY), "--send many"),
    ],
)
def test_what_cannot_be_done_is_refused(plan: Plan, words: str) -> None:
    with pytest.raises(Rejected, match=words):
        plan.check()
