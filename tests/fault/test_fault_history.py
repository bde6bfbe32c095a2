"""The judge must object: each canary here is a history no honest broker can have caused."""

import pytest

from tests.fault.history import Attempt, End, History, Order, Rule, StreamHistory, TopicHistory
from tests.fault.messages import GarbledError, Message, message_in, payload_of


class Story:
    """Tells a history in few words: messages are numbered, their publisher is always the same."""

    def __init__(self, order: Order = Order.LOG) -> None:
        self.history = History()
        self.topic: TopicHistory = self.history.topic("/default/t")
        self.subscription = self.history.subscribed(self.topic, "s", order)
        self.history.broker_started()
        self.stream: StreamHistory = self.history.stream_opened(self.subscription)

    def send(self, number: int, end: End | None = End.OK, key: str = "") -> Attempt:
        attempt = self.history.publish_started(self.topic, Message("p", number), key)
        if end is not None:
            self.history.publish_ended(self.topic, attempt, end)
        return attempt

    def read(self, *rows: tuple[int, int], key: str = "") -> None:
        for offset, number in rows:
            self.history.delivered(self.stream, offset, Message("p", number), key)

    def ack(self, *offsets: int) -> None:
        for offset in offsets:
            self.history.ack_started(self.stream, offset)
            self.history.ack_confirmed(self.stream, offset)

    def restart(self, *, clean: bool = False) -> None:
        if clean:
            self.history.stop_asked()
        self.history.stream_ended(self.stream)
        self.history.broker_ended(clean=clean)
        self.history.broker_started()
        self.stream = self.history.stream_opened(self.subscription)

    def judge(self, fence: int) -> set[Rule]:
        self.history.judge(self.topic, Message("p", fence))
        return self.rules

    @property
    def rules(self) -> set[Rule]:
        return {problem.rule for problem in self.history.problems}


def test_an_honest_history_passes() -> None:
    story = Story()
    story.send(0)
    story.send(1, End.FAIL)
    story.send(2, End.UNKNOWN)
    story.send(3, End.UNKNOWN)
    story.read((0, 0), (1, 2))
    story.ack(0)
    story.restart()
    story.read((0, 0), (1, 2))
    story.send(4)
    story.read((2, 4))
    assert story.judge(fence=4) == set()
    assert story.history.missing(story.subscription, Message("p", 4)) == []


def test_canary_a_lost_message() -> None:
    story = Story()
    story.send(0)
    story.send(1)
    story.send(2)
    story.read((0, 0), (1, 2))
    assert story.judge(fence=2) == {Rule.LOST}


def test_canary_a_lost_fence() -> None:
    story = Story()
    story.send(0)
    assert story.judge(fence=0) == {Rule.LOST}


def test_canary_a_phantom() -> None:
    story = Story()
    story.send(0)
    story.read((0, 7))
    assert story.rules == {Rule.PHANTOM}


@pytest.mark.parametrize("refused_first", [True, False])
def test_canary_a_refused_message_that_was_taken(refused_first: bool) -> None:
    story = Story()
    attempt = story.send(0, End.FAIL if refused_first else None)
    story.read((0, 0))
    if not refused_first:
        story.history.publish_ended(story.topic, attempt, End.FAIL)
    assert story.rules == {Rule.PHANTOM}


def test_canary_one_attempt_in_two_places() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.read((0, 0), (1, 0))
    assert story.rules == {Rule.TWICE}


def test_canary_a_rewritten_offset() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.send(1)
    story.read((0, 0))
    story.restart()
    story.read((0, 1))
    assert story.rules == {Rule.REWRITTEN}


def test_canary_a_hole() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.send(1)
    story.read((2, 0), (3, 1))
    assert story.judge(fence=1) == {Rule.HOLE}


def test_canary_a_reordered_log() -> None:
    story = Story()
    story.send(0)
    story.send(1)
    story.send(2)
    story.read((0, 1), (1, 0), (2, 2))
    assert story.judge(fence=2) == {Rule.REORDERED}


def test_messages_in_flight_together_may_come_out_in_any_order() -> None:
    story = Story()
    first, second = story.send(0, None), story.send(1, None)
    story.history.publish_ended(story.topic, second, End.OK)
    story.history.publish_ended(story.topic, first, End.OK)
    story.send(2)
    story.read((0, 1), (1, 0), (2, 2))
    assert story.judge(fence=2) == set()


def test_canary_an_unknown_message_that_appears_after_its_broker_died() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.restart()
    story.send(1)
    story.read((0, 1), (1, 0))
    story.send(2)
    story.read((2, 2))
    assert story.judge(fence=2) == {Rule.REORDERED}


def test_an_unknown_message_may_appear_late_while_its_broker_lives() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.send(1)
    story.read((0, 1), (1, 0))
    assert story.judge(fence=1) == set()


def test_canary_a_stream_out_of_order() -> None:
    story = Story()
    story.send(0)
    story.send(1)
    story.read((1, 1), (0, 0))
    assert story.rules == {Rule.OUT_OF_ORDER}


def test_a_redelivery_on_the_same_stream_is_in_order() -> None:
    story = Story()
    story.send(0)
    story.send(1)
    story.read((0, 0), (1, 1), (0, 0))
    assert story.rules == set()


def test_order_by_key_looks_at_each_key_alone() -> None:
    story = Story(Order.KEY)
    for number, key in enumerate("aba"):
        story.send(number, key=key)
    story.read((1, 1), key="b")
    story.read((0, 0), key="a")
    assert story.rules == set()
    story.stream = story.history.stream_opened(story.subscription)
    story.read((2, 2), key="a")
    story.read((0, 0), key="a")
    assert story.rules == {Rule.OUT_OF_ORDER}


def test_canary_a_key_that_changed() -> None:
    story = Story()
    story.send(0, key="a")
    story.read((0, 0), key="b")
    assert story.rules == {Rule.GARBLED}


def test_canary_a_cursor_that_was_ahead() -> None:
    story = Story()
    for number in range(3):
        story.send(number)
    story.read((0, 0), (1, 1), (2, 2))
    story.ack(0, 2)
    story.restart()
    assert story.history.missing(story.subscription, Message("p", 2)) == [1]
    story.read((1, 1), (2, 2))
    assert story.history.missing(story.subscription, Message("p", 2)) == []


def test_canary_an_ack_forgotten_by_a_clean_stop() -> None:
    story = Story()
    for number in range(3):
        story.send(number)
    story.read((0, 0), (1, 1), (2, 2))
    story.ack(0, 2)
    story.restart(clean=True)
    story.read((1, 1), (2, 2))
    assert story.rules == set()
    story.read((0, 0))
    assert Rule.UNSETTLED in story.rules


def test_an_ack_forgotten_by_a_crash_is_no_problem() -> None:
    story = Story()
    story.send(0)
    story.read((0, 0))
    story.ack(0)
    story.restart()
    story.read((0, 0))
    assert story.rules == set()


def test_an_ack_on_a_stream_that_had_ended_promises_nothing() -> None:
    story = Story()
    story.send(0)
    story.read((0, 0))
    story.history.stream_ended(story.stream)
    story.ack(0)
    story.restart(clean=True)
    story.read((0, 0))
    assert story.rules == set()


def test_canary_an_acknowledged_offset_where_something_else_is() -> None:
    story = Story()
    attempt = story.send(0, None)
    story.history.publish_ended(story.topic, attempt, End.OK, offset=0)
    story.read((1, 0))
    assert story.rules == {Rule.MISPLACED}


def test_canary_an_offset_acknowledged_after_it_was_read_elsewhere() -> None:
    story = Story()
    attempt = story.send(0, None)
    story.read((1, 0))
    story.history.publish_ended(story.topic, attempt, End.OK, offset=0)
    assert story.rules == {Rule.MISPLACED}


@pytest.mark.parametrize(("keeps_order", "rules"), [(True, {Rule.REORDERED}), (False, set())])
def test_canary_a_producer_whose_pipelined_messages_changed_places(
    keeps_order: bool, rules: set[Rule]
) -> None:
    story = Story()
    if keeps_order:
        story.topic.in_order.add("p")
    first, second = story.send(0, None), story.send(1, None)
    for attempt in (first, second):
        story.history.publish_ended(story.topic, attempt, End.OK)
    story.send(2)
    story.read((0, 1), (1, 0), (2, 2))
    assert story.judge(fence=2) == rules


def test_a_new_session_says_what_became_of_the_messages_of_the_one_before() -> None:
    story = Story()
    story.send(0)
    story.send(1, End.UNKNOWN)
    pending = story.send(2, None)
    story.history.session_ended(story.topic, "p", taken=2)
    story.history.publish_ended(story.topic, pending, End.UNKNOWN)
    story.read((0, 0), (1, 1))
    assert story.rules == set()
    assert [attempt.end for attempt in story.topic.attempts.values()] == [End.OK, End.OK, End.FAIL]


def test_canary_a_message_the_next_session_was_told_of_and_nobody_gets() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.history.session_ended(story.topic, "p", taken=1)
    fence = story.history.publish_started(story.topic, Message("fence", 0))
    story.history.publish_ended(story.topic, fence, End.OK)
    story.history.delivered(story.stream, 0, Message("fence", 0))
    story.history.judge(story.topic, Message("fence", 0))
    assert story.rules == {Rule.LOST}


def test_canary_an_acknowledged_message_the_next_session_was_not_told_of() -> None:
    story = Story()
    story.send(0)
    story.history.session_ended(story.topic, "p", taken=0)
    assert story.rules == {Rule.FENCED}


@pytest.mark.parametrize("sent_before", [True, False])
def test_canary_a_zombie_that_is_heard(sent_before: bool) -> None:
    story = Story()
    if sent_before:
        story.send(0, None)
    story.history.session_ended(story.topic, "p", taken=0)
    if not sent_before:
        story.send(0, None)
    story.read((0, 0))
    assert story.rules == {Rule.PHANTOM}


def test_canary_a_zombie_that_is_acknowledged() -> None:
    story = Story()
    story.history.session_ended(story.topic, "p", taken=0)
    story.send(0)
    assert story.rules == {Rule.FENCED}


def test_canary_a_reader_that_skips_or_repeats() -> None:
    for rows in ((0, 2), (0, 0), (1,)):
        story = Story()
        for number in range(3):
            story.send(number)
        reader = story.history.reader_opened(story.topic, "r")
        for number in rows:
            story.history.read(reader, number, Message("p", number))
        assert story.rules == {Rule.HOLE}


def test_canary_a_reader_that_sees_something_else_the_second_time() -> None:
    story = Story()
    story.send(0, End.UNKNOWN)
    story.send(1)
    for number in range(2):
        reader = story.history.reader_opened(story.topic, f"r{number}")
        story.history.read(reader, 0, Message("p", number))
    assert story.rules == {Rule.REWRITTEN}


def test_an_ack_whose_answer_is_lost_settles_the_message_unless_it_comes_again() -> None:
    story = Story()
    story.send(0)
    story.read((0, 0))
    story.history.ack_started(story.stream, 0)
    story.history.ack_lost(story.stream, 0)
    assert story.history.unanswered(story.subscription) == []
    story.read((0, 0))
    assert story.history.unanswered(story.subscription) == [0]


def test_canary_a_garbled_payload() -> None:
    sent = payload_of(Message("p", 3), 1000)
    assert message_in(sent) == Message("p", 3)
    with pytest.raises(GarbledError, match="p#3"):
        message_in(sent[:-1] + b"?")
    with pytest.raises(GarbledError, match="names no message"):
        message_in(b"hello")
