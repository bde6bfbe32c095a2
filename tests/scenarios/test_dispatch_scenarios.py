"""Runs the transcripts beside this file: commands above the line, decisions below.

A transcript drives one reliable subscription over a simulated log. After every command the runner does what
the broker does: offer while there is room, perform the actions. `nothing` stands for no decision. Times are
milliseconds. To refresh the decisions after an intended change: PYDANUBE_REWRITE_SCENARIOS=1, then read the diff.

    subscription KIND [window= bytes= rate= cursor=] [failure policy fields]
    publish N | publish KEY ... | publish size=BYTES        append to the log
    publish batch=N                                         append N messages as one entry
            [at=MS] [ttl=MS]                                to be delivered not before / within this time from now
    join NAME [FILTER ...] / leave NAME                     register / remove
    attach NAME [CREDIT] [bytes=] [unacked=] / detach NAME  streams; the credit defaults to 100
    grant NAME CREDIT [bytes=]
    connect NAME [FILTER ...]                               join and attach
    ack OFFSET ... / nack OFFSET [delay=] [reason=]         OFFSET may be a range: FIRST-LAST
    advance MS                                              let time pass, then tick
    sleep                                                   let time pass until the subscription wants to wake
    policy [fields] / window N / rate N                     change settings
    dead-letter ok|fail OFFSET                              outcome of a publish
    trim OFFSET                                             the log now starts here
    seek OFFSET                                             go on at another place in the log
    restart                                                 load again from the cursor; consumers must return
    status                                                  say the counters that are not 0
"""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from pydanube.dispatch import (
    NO_BYTE_LIMIT,
    DeadLetter,
    Deliver,
    ReliableSubscription,
    reliable_subscription,
)
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


@dataclass
class Logged:
    """An entry of the log: one message, or a batch."""

    base: int
    count: int
    message: bytes
    key: str
    not_before_ms: int = 0
    expires_ms: int = 0


class Stage:
    """A subscription, its log and its clock; `lines` are the decisions since they were last taken."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.log: list[Logged] = []  # by offset; a batch stands at each of its offsets
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
            logged = self.log[offset]
            room = subscription.offer(
                offset,
                logged.message,
                logged.key,
                logged.base + logged.count - offset,
                logged.base,
                logged.not_before_ms,
                logged.expires_ms,
            )
            subscription.validate()
        for action in subscription.actions(self.now_ms):
            self.lines.append(self.describe(action))
        subscription.validate()
        self.note_changes()

    def describe(self, action: Deliver | DeadLetter) -> str:
        logged = self.log[action.offset]
        assert action.message is logged.message
        assert action.base == logged.base
        last = action.offset + action.count - 1
        assert self.log[last] is logged
        offsets = f"{action.offset}-{last}" if action.count > 1 else f"{action.offset}"
        if isinstance(action, Deliver):
            name = next(name for name, number in self.ids.items() if number == action.consumer_id)
            again = f" attempt={action.attempt}" if action.attempt > 1 else ""
            return f"deliver {name} {offsets}{again}"
        return f"dead-letter {offsets} to={action.topic} attempts={action.attempts} reason={action.reason}"

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
        self.log = [Logged(0, 1, b"before", "before")] * self.subscription.next_offset

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
        times = dict(word.split("=") for word in words if word.startswith(("at=", "ttl=")))
        not_before_ms = int(times.get("at", 0))
        expires_ms = self.now_ms + int(times["ttl"]) if "ttl" in times else 0

        def append(count: int = 1, size: int = 10, key: str = "key") -> None:
            base = len(self.log)
            message = (b"message %d" % base).ljust(size)[:size]
            self.log += [Logged(base, count, message, key, not_before_ms, expires_ms)] * count

        for word in words:
            if word.startswith("size="):
                append(size=int(word[5:]))
            elif word.startswith("batch="):
                append(int(word[6:]))
            elif word.isdigit():
                for _ in range(int(word)):
                    append()
            elif "=" not in word:
                append(key=word)

    def do_join(self, name: str, *filters: str) -> None:
        self.ids.setdefault(name, len(self.ids) + 1)
        self.subscription.join(self.ids[name], filters=filters)

    def do_leave(self, name: str) -> None:
        self.subscription.leave(self.ids[name])

    def do_attach(self, name: str, *options: str) -> None:
        given = dict(option.split("=") for option in options if "=" in option)
        plain = [option for option in options if "=" not in option]
        self.subscription.attach(self.ids[name], self.now_ms, int(given.pop("unacked", 0)))
        self.do_grant(name, *(plain or ["100"]), *(f"bytes={size}" for size in given.values()))

    def do_detach(self, name: str) -> None:
        self.subscription.detach(self.ids[name], self.now_ms)

    def do_grant(self, name: str, credit: str, size: str = f"bytes={NO_BYTE_LIMIT}") -> None:
        self.subscription.grant(self.ids[name], int(credit), int(size.removeprefix("bytes=")))

    def do_connect(self, name: str, *filters: str) -> None:
        self.do_join(name, *filters)
        self.do_attach(name)

    def do_ack(self, *offsets: str) -> None:
        for offset in offsets:
            first, _, last = offset.partition("-")
            if last:
                self.subscription.ack_range(int(first), int(last), self.now_ms)
            else:
                self.subscription.ack(int(first), self.now_ms)

    def do_nack(self, offset: str, *options: str) -> None:
        given = dict(option.split("=") for option in options)
        delay_ms, reason = int(given.get("delay", 0)), given.get("reason")
        first, _, last = offset.partition("-")
        if last:
            self.subscription.nack_range(int(first), int(last), self.now_ms, delay_ms, reason)
        else:
            self.subscription.nack(int(first), self.now_ms, delay_ms=delay_ms, reason=reason)

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

    def do_seek(self, offset: str) -> None:
        self.subscription.seek(int(offset))

    def do_restart(self) -> None:
        self.load(self.subscription.cursor)

    def do_status(self) -> None:
        counters = self.subscription.counters
        counted = [f"{name}={getattr(counters, name)}" for name in COUNTER_NAMES]
        shown = [text for text in counted if not text.endswith("=0")]
        shown.append(f"pending_redelivery={self.subscription.pending_redelivery}")
        shown.append(f"in_window={self.subscription.messages_held}")
        if self.subscription.delayed:
            shown.append(f"delayed={self.subscription.delayed}")
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
