"""Runs the transcripts beside this file: commands above the line, decisions below.

A transcript drives one reliable subscription over a simulated log. After every command the runner does what
the broker does: offer while there is room, perform the actions. `nothing` stands for no decision. Times are
milliseconds. To refresh the decisions after an intended change: PYDANUBE_REWRITE_SCENARIOS=1, then read the diff.

    subscription KIND [window= bytes= rate= cursor=] [failure policy fields]
    publish N | publish KEY ... | publish size=BYTES        append to the log
    join NAME [FILTER ...] / leave NAME                     register / remove
    attach NAME [CREDIT] / detach NAME / grant NAME CREDIT  streams; the credit defaults to 100
    connect NAME [FILTER ...]                               join and attach
    ack OFFSET ... / nack OFFSET [delay=] [reason=]
    advance MS                                              let time pass, then tick
    sleep                                                   let time pass until the subscription wants to wake
    policy [fields] / window N / rate N                     change settings
    dead-letter ok|fail OFFSET                              outcome of a publish
    trim OFFSET                                             the log now starts here
    restart                                                 load again from the cursor; consumers must return
    status                                                  say the counters that are not 0
"""

import os
from pathlib import Path

import pytest

from pydanube.dispatch import DeadLetter, Deliver, ReliableSubscription, reliable_subscription
from pydanube.dispatch.counters import COUNTER_NAMES
from pydanube.kernel.policies import BackoffStrategy, FailurePolicy, PoisonPolicy, SubscriptionType

HERE = Path(__file__).parent
TRANSCRIPTS = sorted(HERE.glob("*.txt"))
LINE = "----"
KINDS = {
    "exclusive": SubscriptionType.EXCLUSIVE,
    "failover": SubscriptionType.FAILOVER,
    "shared": SubscriptionType.SHARED,
    "key-shared": SubscriptionType.KEY_SHARED,
}


class Stage:
    """A subscription, its log and its clock; `lines` are the decisions since they were last taken."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log: list[tuple[bytes, str]] = []
        self.ids: dict[str, int] = {}
        self.settings: dict[str, str] = {}
        self.lines: list[str] = []
        self.subscription: ReliableSubscription

    def run(self, command: str) -> None:
        name, *words = command.split()
        getattr(self, "do_" + name.replace("-", "_"))(*words)
        self.dispatch()

    def dispatch(self) -> None:
        """What the broker's driver does after any event."""
        subscription = self.subscription
        room = subscription.room()
        while room > 0 and subscription.next_offset < len(self.log):
            offset = subscription.next_offset
            room = subscription.offer(offset, *self.log[offset])
            subscription.validate()
        for action in subscription.actions(self.now_ms):
            self.lines.append(self.describe(action))
        subscription.validate()
        self.note_changes()

    def describe(self, action: Deliver | DeadLetter) -> str:
        if isinstance(action, Deliver):
            name = next(name for name, number in self.ids.items() if number == action.consumer_id)
            assert action.message == self.log[action.offset][0]
            again = f" attempt={action.attempt}" if action.attempt > 1 else ""
            return f"deliver {name} {action.offset}{again}"
        assert action.message == self.log[action.offset][0]
        return (
            f"dead-letter {action.offset} to={action.topic} attempts={action.attempts} reason={action.reason}"
        )

    def note_changes(self) -> None:
        cursor, blocked = self.subscription.cursor, self.subscription.blocked
        if cursor != self.last_cursor:
            self.lines.append(f"cursor {cursor}")
            self.last_cursor = cursor
        if blocked != self.last_blocked:
            self.lines.append(f"blocked {blocked}")
            self.last_blocked = blocked

    def do_subscription(self, kind: str, *options: str) -> None:
        self.settings = {"kind": kind, **dict(option.split("=") for option in options)}
        self.load(int(self.settings.get("cursor", -1)))
        self.log = [(b"before", "before")] * self.subscription.next_offset

    def load(self, cursor: int) -> None:
        settings = self.settings
        self.subscription = reliable_subscription(
            KINDS[settings["kind"]],
            cursor=cursor,
            window=int(settings.get("window", 10)),
            window_bytes=int(settings.get("bytes", 1 << 26)),
            policy=failure_policy(settings),
            dispatch_rate=int(settings.get("rate", 0)),
        )
        self.last_cursor = cursor
        self.last_blocked = 0

    def do_publish(self, *words: str) -> None:
        for word in words:
            if word.startswith("size="):
                self.log.append((b"x" * int(word[5:]), "key"))
            elif word.isdigit():
                self.log += [(b"message %d" % (len(self.log) + i), "key") for i in range(int(word))]
            else:
                self.log.append((b"message %d" % len(self.log), word))

    def do_join(self, name: str, *filters: str) -> None:
        self.ids.setdefault(name, len(self.ids) + 1)
        self.subscription.join(self.ids[name], filters=filters)

    def do_leave(self, name: str) -> None:
        self.subscription.leave(self.ids[name])

    def do_attach(self, name: str, credit: str = "100") -> None:
        self.subscription.attach(self.ids[name], self.now_ms)
        self.subscription.grant(self.ids[name], int(credit))

    def do_detach(self, name: str) -> None:
        self.subscription.detach(self.ids[name], self.now_ms)

    def do_grant(self, name: str, credit: str) -> None:
        self.subscription.grant(self.ids[name], int(credit))

    def do_connect(self, name: str, *filters: str) -> None:
        self.do_join(name, *filters)
        self.do_attach(name)

    def do_ack(self, *offsets: str) -> None:
        for offset in offsets:
            self.subscription.ack(int(offset), self.now_ms)

    def do_nack(self, offset: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        self.subscription.nack(
            int(offset), self.now_ms, delay_ms=int(given.get("delay", 0)), reason=given.get("reason")
        )

    def do_advance(self, milliseconds: str) -> None:
        self.now_ms += int(milliseconds)
        self.subscription.tick(self.now_ms)

    def do_sleep(self) -> None:
        wake_ms = self.subscription.next_wake_ms()
        if wake_ms is None:
            self.lines.append("sleeps until an event")
            return
        self.now_ms = max(self.now_ms, wake_ms)
        self.lines.append(f"woke at {self.now_ms}")

    def do_policy(self, *options: str) -> None:
        self.settings.update(dict(option.split("=") for option in options))
        self.subscription.set_policy(failure_policy(self.settings))

    def do_window(self, messages: str) -> None:
        self.subscription.set_window(int(messages))

    def do_rate(self, rate: str) -> None:
        self.subscription.set_dispatch_rate(int(rate))

    def do_dead_letter(self, outcome: str, offset: str) -> None:
        self.subscription.dead_lettered(int(offset), outcome == "ok")

    def do_trim(self, offset: str) -> None:
        self.subscription.skip_to(int(offset))

    def do_restart(self) -> None:
        self.load(self.subscription.cursor)

    def do_status(self) -> None:
        counters = self.subscription.counters
        counted = [f"{name}={getattr(counters, name)}" for name in COUNTER_NAMES]
        shown = [text for text in counted if not text.endswith("=0")]
        shown.append(f"pending_redelivery={self.subscription.pending_redelivery}")
        shown.append(f"in_window={self.subscription.messages_held}")
        self.lines.append("status " + " ".join(shown))


def failure_policy(settings: dict[str, str]) -> FailurePolicy:
    return FailurePolicy(
        max_redelivery_count=int(settings.get("redeliveries", 5)),
        ack_timeout_ms=int(settings.get("ack_timeout", 30_000)),
        base_redelivery_delay_ms=int(settings.get("delay", 1_000)),
        max_redelivery_delay_ms=int(settings.get("delay_max", 60_000)),
        backoff_strategy=BackoffStrategy(settings.get("backoff", "exponential")),
        poison_policy=PoisonPolicy(settings.get("poison", "block")),
        dead_letter_topic=settings.get("dead_letter_topic"),
    )


def replay(text: str) -> str:
    """The same transcript with the decisions that were taken now."""
    stage = Stage()
    paragraphs = []
    for paragraph in text.strip().split("\n\n"):
        lines = paragraph.split("\n")
        if LINE not in lines:
            assert all(line.startswith("#") for line in lines), f"commands without {LINE}: {paragraph}"
            paragraphs.append(paragraph)
            continue
        commands = lines[: lines.index(LINE)]
        stage.lines = []
        for command in commands:
            if not command.startswith("#"):
                stage.run(command)
        paragraphs.append("\n".join([*commands, LINE, *(stage.lines or ["nothing"])]))
    return "\n\n".join(paragraphs) + "\n"


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=[path.stem for path in TRANSCRIPTS])
def test_decisions_are_those_of_the_transcript(path: Path) -> None:
    written = path.read_text()
    decided = replay(written)
    if os.environ.get("PYDANUBE_REWRITE_SCENARIOS"):
        path.write_text(decided)
    else:
        assert decided == written


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 20
