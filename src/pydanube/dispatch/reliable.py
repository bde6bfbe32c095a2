"""What every reliable subscription does with a message, whoever receives it.

A message enters the window by `offer` and leaves it when it is settled: acked, or skipped by a stated policy.
In between it is ready → awaiting ack → (nack, deadline) waiting → ready …, until it has failed more often than
the policy allows; then the poison policy decides. A lost stream makes its messages ready again at once and is
not counted as a failure.

A batch is offered as one range of offsets and takes every step as one, until somebody acks or nacks a part of
it. A message with a delivery time enters the window as delayed and becomes ready when that comes; those behind it
do not wait. One whose time to live has passed when its turn comes is skipped.

The kinds differ in who gets a message and in which order: that is what the abstract methods ask.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Final

from pydanube.dispatch.actions import Action, DeadLetter, Deliver
from pydanube.dispatch.consumer import NO_LIMIT, Consumer, UnackedLimit
from pydanube.dispatch.counters import Counters
from pydanube.dispatch.entry import (
    AWAITING_ACK,
    BLOCKED,
    DEAD_LETTERING,
    EXHAUSTED,
    NEVER,
    READY,
    SETTLED,
    WAITING,
    Entry,
)
from pydanube.dispatch.pacing import Pacer
from pydanube.dispatch.settings import Settings
from pydanube.dispatch.window import DELAYED_MAX, DispatchWindow
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.policies import FailurePolicy, PoisonPolicy

ACK_TIMEOUT_REASON: Final = "ack timeout"
DEAD_LETTER_RETRY_MS: Final = 500
"""Pause after a dead-letter copy could not be published."""
NO_BYTE_LIMIT: Final = NO_LIMIT

_ENTRIES_PER_SCAN_MS: Final = 64
"""Timers are found by scanning the window; a scan of n entries is followed by a pause of n/64 ms at least."""


class ReliableSubscription(DispatchWindow):
    """Decides; the driver acts.

    After any event the driver calls `room`, offers what it may, and performs `actions`. All moments are
    milliseconds of one clock that does not go back.
    """

    def __init__(self, cursor: int, settings: Settings) -> None:
        super().__init__(cursor, settings.window, settings.window_bytes)
        self.blocked = 0
        """Messages that stand still under the block policy."""
        self.counters = Counters()
        self._pacer = Pacer(settings.dispatch_rate)
        self._policy = settings.policy
        self._ack_timeout_ms = settings.policy.ack_timeout_ms
        self._consumers: dict[int, Consumer] = {}
        self._attached = 0
        self._window_limit = UnackedLimit(settings.window)
        """Of the consumers that bring no limit of their own."""
        self._dead_letters: list[Entry] = []
        self._timer_ms = NEVER
        """No timer is due before this moment; it may be earlier than the first one."""
        self._now_ms = 0

    # The log side.

    def room(self) -> int:
        """How many messages may be offered now; the last batch may be larger than what is left."""
        if self.blocked != 0 or self._attached == 0 or self.bytes_held >= self._bytes_max:
            return 0
        room = self._messages_max - len(self._entries) - self._surplus
        if self.delayed != 0:
            room += min(self.delayed, DELAYED_MAX)
        return room if room > 0 else 0

    def offer(  # noqa: PLR0917 - once per message: by position is fastest
        self,
        offset: int,
        message: bytes,
        key: str | bytes,
        count: int = 1,
        base: int = -1,
        not_before_ms: int = 0,
        expires_ms: int = 0,
        append_ms: int = 0,
    ) -> int:
        """Take the next `count` messages in log order, all of them in `message`, and return the room left.

        `base` is the offset of the first one in `message`, if that is another than `offset`. They are not sent
        before `not_before_ms` and not from `expires_ms` on. Both are compared with the last moment the machine
        was told; 0 is none. `append_ms` comes back in `Deliver`. What the driver read under an earlier `room` is
        accepted even if there is none left by now.
        """
        assert offset == self.next_offset, f"offered {offset}, expected {self.next_offset}"
        self.next_offset = offset + count
        entry = Entry(offset, message, count, base if base >= 0 else offset, expires_ms, append_ms)
        if not_before_ms > self._now_ms:
            self._delay(entry, key, not_before_ms)
        elif self._keyed and not self._enqueue(entry, key):
            self.counters.filtered += count
            if not self._entries:
                self.cursor = self.next_offset - 1
            return self.room()
        self._entries[offset] = entry
        self._log.append(entry)
        self.bytes_held += len(message)
        if count != 1:
            self._add_range(entry)
        return self.room()

    def skip_to(self, offset: int) -> None:
        """The log now starts at `offset`: what was not read before it is gone."""
        if offset <= self.next_offset:
            return
        self.counters.lost_to_retention += offset - self.next_offset
        self.next_offset = offset
        if not self._entries:
            self.cursor = offset - 1

    def seek(self, offset: int) -> None:
        """Go on at `offset`, wherever in the log that is, as if nothing before it were unsettled.

        The window is emptied and every block ends. Consumers, streams and credits stay. An ack of what was sent
        before counts only if it is sent again.
        """
        self.counters.seeks += 1
        self._forget_all(offset - 1)
        self.blocked = 0
        self._dead_letters.clear()
        for consumer in self._consumers.values():
            consumer.limit.left += consumer.outstanding
            consumer.outstanding = 0
        self._emptied()

    # The consumers' side.

    def join(self, consumer_id: int, *, filters: Sequence[str] = ()) -> None:
        """Register a consumer; one that is registered already only gets the new filters."""
        consumer = self._consumers.get(consumer_id)
        if consumer is not None:
            self._refiltered(consumer, filters)
            return
        joined = 1 + max([other.joined for other in self._consumers.values()], default=0)
        consumer = Consumer(consumer_id, joined, filters, self._window_limit)
        self._consumers[consumer_id] = consumer
        self._joined(consumer)

    def leave(self, consumer_id: int) -> None:
        """Remove a consumer for good; what it had not acked goes to the others."""
        consumer = self._consumers.get(consumer_id)
        if consumer is None:
            return
        del self._consumers[consumer_id]
        if consumer.attached:
            self._detach(consumer)
        self._left(consumer)

    def attach(self, consumer_id: int, now_ms: int, unacked_max: int = 0) -> None:
        """The consumer's stream was opened. If it had one, the new one takes over.

        Everything sent to it and not acked is due at once. Nothing is sent before `grant`. With `unacked_max`
        it may hold so many unacked messages, and the window is larger by as many while it is attached; with 0
        it shares the subscription's window with the others.
        """
        consumer = self._consumers.get(consumer_id)
        if consumer is None:
            raise Rejected(
                f"consumer {consumer_id} is not registered on this subscription: subscribe again",
                ErrorCode.CONSUMER_UNKNOWN,
            )
        self._now_ms = now_ms
        consumer.credit = 0
        if consumer.attached:
            self._taken_over(consumer)
            self._limit(consumer, unacked_max)
            return
        self._limit(consumer, unacked_max)
        consumer.attached = True
        self._attached += 1
        self._opened(consumer)

    def detach(self, consumer_id: int, now_ms: int) -> None:
        """The consumer's stream was lost: what it had not acked is due at once, without counting as failed."""
        self._now_ms = now_ms
        consumer = self._consumers.get(consumer_id)
        if consumer is not None and consumer.attached:
            self._detach(consumer)
            self._lost(consumer)

    def grant(self, consumer_id: int, credit: int, credit_bytes: int = NO_BYTE_LIMIT) -> None:
        """Say how much more the consumer's stream takes; replaces what was said before.

        It is sent something while it takes at least one message and one byte; a batch may be more than that.
        """
        consumer = self._consumers.get(consumer_id)
        if consumer is not None and consumer.attached:
            consumer.credit = credit if credit_bytes > 0 else 0
            consumer.credit_bytes = credit_bytes
            consumer.counts_bytes = credit_bytes != NO_BYTE_LIMIT

    def ack(self, offset: int, now_ms: int) -> None:
        """Settle an outstanding message. Late, repeated and unknown acks change nothing."""
        entry = self._entries.get(offset)
        if entry is None or entry.count != 1:
            self.ack_range(offset, offset, now_ms)
            return
        if entry.state != AWAITING_ACK:
            return
        # What `_acked` does, for the path of almost every message.
        self.counters.acked += 1
        consumer = entry.consumer
        assert consumer is not None
        consumer.outstanding -= 1
        consumer.limit.left += 1
        self._settle(entry)

    def ack_range(self, first: int, last: int, now_ms: int) -> None:
        """Settle what is outstanding of first..last, both included; whatever else lies there stays as it is."""
        entry = self._entries.get(first)
        if entry is not None and first + entry.count - 1 == last:
            if entry.state == AWAITING_ACK:
                self._acked(entry)
            return
        for entry in self._overlapping(first, last):
            if entry.state == AWAITING_ACK:
                self._acked(self._carve(entry, first, last))

    def nack(self, offset: int, now_ms: int, *, delay_ms: int = 0, reason: str | None = None) -> None:
        """Count an outstanding message as failed, or change the delay of one that is waiting already."""
        entry = self._entries.get(offset)
        if entry is None or entry.count != 1:
            self.nack_range(offset, offset, now_ms, delay_ms, reason)
        # A ready one is about to be sent again anyhow; an exhausted one is in the hands of the policy.
        elif entry.state in (AWAITING_ACK, WAITING):
            self.counters.nacked += 1
            self._fail(entry, now_ms, delay_ms, reason)

    def nack_range(
        self, first: int, last: int, now_ms: int, delay_ms: int = 0, reason: str | None = None
    ) -> None:
        """Do so for all of first..last, both included."""
        for entry in self._overlapping(first, last):
            if entry.state in (AWAITING_ACK, WAITING):
                failed = self._carve(entry, first, last)
                self.counters.nacked += failed.count
                self._fail(failed, now_ms, delay_ms, reason)

    def dead_lettered(self, offset: int, ok: bool) -> None:
        """The driver's answer to `DeadLetter`: the copy is published, or it has to be tried again."""
        entry = self._entries.get(offset)
        if entry is None or entry.state != DEAD_LETTERING:
            return
        if ok:
            self.counters.dead_lettered += entry.count
            self._settle(entry)
        else:
            entry.state = EXHAUSTED
            self._set_timer(entry, self._now_ms + DEAD_LETTER_RETRY_MS)

    # Settings.

    def set_policy(self, policy: FailurePolicy) -> None:
        """Use another failure policy from now on. Ends every block: the new policy judges anew."""
        self._policy = policy
        self._ack_timeout_ms = policy.ack_timeout_ms
        self._dead_letters.clear()
        for entry in [entry for entry in self._log if entry.state in (BLOCKED, EXHAUSTED)]:
            if entry.state == BLOCKED:
                self.blocked -= entry.count
                self._unblocked(entry)
            if entry.attempts > policy.max_redelivery_count:
                if self._poison_policy() is not PoisonPolicy.BLOCK:
                    self._apply_poison_policy(entry)
                    continue
                entry.attempts = 0
            self._make_ready(entry)

    def set_window(self, window: int) -> None:
        """Change how many messages may be unacked; a smaller window takes effect as messages are settled."""
        self._messages_max += window - self._window_limit.messages_max
        self._window_limit.change(window)

    def set_dispatch_rate(self, rate: int) -> None:
        """Change how many messages may be sent per second; 0 means no limit."""
        self._pacer.set_rate(rate)

    # Decisions.

    def tick(self, now_ms: int) -> None:
        """Let time pass: ack deadlines, retry delays, delivery times."""
        self._now_ms = now_ms
        if now_ms >= self._timer_ms:
            self._run_timers(now_ms)
        if self._delays:
            self._end_delays(now_ms)

    def actions(self, now_ms: int) -> list[Action]:
        """Decide what to do now. Each delivery takes its messages and bytes off its consumer's credits."""
        self._now_ms = now_ms
        if now_ms >= self._timer_ms:
            self._run_timers(now_ms)
        if self._delays:
            self._end_delays(now_ms)
        actions: list[Action] = []
        pacer = self._pacer
        pacer.is_dry = False
        if self._dead_letters:
            self._publish_dead_letters(actions)
        if self._attached != 0 and self._entries:
            allowance = pacer.allowance(now_ms)
            deadline_ms = now_ms + self._ack_timeout_ms
            unspent = self._dispatch(allowance, deadline_ms, actions)
            pacer.is_dry = unspent <= 0
            if unspent != allowance:
                self.counters.delivered += allowance - unspent
                pacer.spend(allowance - unspent)
                self._timer_ms = min(self._timer_ms, deadline_ms)
        return actions

    def next_wake_ms(self) -> int | None:
        """When `actions` has to be called again even if nothing happens; None if there is no need."""
        wake = self._timer_ms
        if self._delays:
            wake = min(wake, self._delays[0][0])
        if self._pacer.is_dry and self._entries:
            wake = min(wake, self._pacer.next_token_ms())
        return None if wake == NEVER else wake

    @property
    def outstanding(self) -> int:
        """How many messages were sent and await their ack."""
        return sum([consumer.outstanding for consumer in self._consumers.values()])

    def outstanding_of(self, consumer_id: int) -> int:
        """How many of them are with that consumer."""
        return self._consumers[consumer_id].outstanding

    @property
    def pending_redelivery(self) -> int:
        """How many messages have failed or lost their stream and are to be sent again."""
        failed = [e for e in self._entries.values() if e.state in (READY, WAITING) and e.attempts > 0]
        return sum([entry.count for entry in failed])

    # What the kinds decide.

    def _enqueue(self, entry: Entry, key: str | bytes) -> bool:
        """Take a new message; False if nobody wants it. Asked only by those whose messages have keys."""
        return True

    @abstractmethod
    def _requeue(self, entry: Entry) -> None:
        """Take back a message that is ready to be sent again."""

    @abstractmethod
    def _emptied(self) -> None:
        """The window was emptied: nothing is ready."""

    @abstractmethod
    def _dispatch(self, allowance: int, deadline_ms: int, actions: list[Action]) -> int:
        """Send what may be sent, by `_send`, and `_expire` what is too old.

        Return what is left of the allowance; a batch may take more than that.
        """

    @abstractmethod
    def _joined(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _left(self, consumer: Consumer) -> None: ...

    @abstractmethod
    def _opened(self, consumer: Consumer) -> None:
        """Its stream was opened."""

    @abstractmethod
    def _lost(self, consumer: Consumer) -> None:
        """Its stream was lost."""

    @abstractmethod
    def _taken_over(self, consumer: Consumer) -> None:
        """A new stream replaced its stream."""

    @abstractmethod
    def _refiltered(self, consumer: Consumer, filters: Sequence[str]) -> None:
        """It asked for other keys."""

    @abstractmethod
    def _was_blocked(self, entry: Entry) -> None:
        """A message stands still from now on."""

    @abstractmethod
    def _unblocked(self, entry: Entry) -> None:
        """A message no longer stands still."""

    # What they share.

    def _send(self, entry: Entry, consumer: Consumer, deadline_ms: int, actions: list[Action]) -> None:
        attempt = entry.attempts + 1
        entry.attempts = attempt
        entry.state = AWAITING_ACK
        entry.due_ms = deadline_ms
        entry.consumer = consumer
        count = entry.count
        consumer.credit -= count
        if consumer.counts_bytes:
            consumer.take_bytes(len(entry.message))
        consumer.outstanding += count
        consumer.limit.left -= count
        if attempt > 1:
            self.counters.redelivered += count
        actions.append(
            Deliver(
                consumer.consumer_id,
                entry.offset,
                entry.message,
                attempt,
                count,
                entry.base,
                entry.append_ms,
            )
        )

    def _expire(self, entry: Entry) -> None:
        self.counters.expired += entry.count
        self._settle(entry)

    def _acked(self, entry: Entry) -> None:
        count = entry.count
        self.counters.acked += count
        consumer = entry.consumer
        assert consumer is not None
        consumer.outstanding -= count
        consumer.limit.left += count
        self._settle(entry)

    def _limit(self, consumer: Consumer, unacked_max: int) -> None:
        """Say how many unacked messages it may hold; it holds none now."""
        if consumer.attached:
            self._messages_max -= consumer.unacked_max
        self._messages_max += unacked_max
        consumer.unacked_max = unacked_max
        consumer.limit = UnackedLimit(unacked_max) if unacked_max > 0 else self._window_limit

    def _detach(self, consumer: Consumer) -> None:
        consumer.attached = False
        consumer.credit = 0
        self._attached -= 1
        self._messages_max -= consumer.unacked_max

    def _take_back(self, consumer: Consumer) -> None:
        """Make ready again what is outstanding at the consumer."""
        if consumer.outstanding == 0:
            return
        for entry in self._entries.values():
            if entry.consumer is consumer:
                self._release(entry)
                self._make_ready(entry)

    def _release(self, entry: Entry) -> None:
        """The message is no longer outstanding."""
        consumer = entry.consumer
        if consumer is not None:
            consumer.outstanding -= entry.count
            consumer.limit.left += entry.count
            entry.consumer = None

    def _fail(self, entry: Entry, now_ms: int, delay_ms: int, reason: str | None) -> None:
        self._release(entry)
        entry.reason = reason
        if entry.attempts > self._policy.max_redelivery_count:
            self._exhaust(entry)
            return
        delay = self._policy.retry_delay_ms(attempts=entry.attempts, requested_ms=delay_ms)
        if delay == 0:
            self._make_ready(entry)
        else:
            entry.state = WAITING
            self._set_timer(entry, now_ms + delay)

    def _make_ready(self, entry: Entry) -> None:
        entry.state = READY
        entry.due_ms = NEVER
        self._requeue(entry)

    def _exhaust(self, entry: Entry) -> None:
        poison = self._poison_policy()
        if poison is PoisonPolicy.DROP:
            self.counters.exhausted_dropped += entry.count
        elif poison is PoisonPolicy.DEAD_LETTER:
            self.counters.exhausted_dead_lettered += entry.count
        else:
            self.counters.exhausted_blocked += entry.count
        self._apply_poison_policy(entry)

    def _apply_poison_policy(self, entry: Entry) -> None:
        poison = self._poison_policy()
        entry.due_ms = NEVER
        if poison is PoisonPolicy.DROP:
            self.counters.dropped += entry.count
            self._settle(entry)
        elif poison is PoisonPolicy.DEAD_LETTER:
            entry.state = EXHAUSTED
            self._dead_letters.append(entry)
        else:
            entry.state = BLOCKED
            self.blocked += entry.count
            self._was_blocked(entry)

    def _poison_policy(self) -> PoisonPolicy:
        policy = self._policy.poison_policy
        if policy is PoisonPolicy.DEAD_LETTER and not self._policy.dead_letter_topic:
            # There is nowhere to put the copy, and dropping was not asked for.
            return PoisonPolicy.BLOCK
        return policy

    def _publish_dead_letters(self, actions: list[Action]) -> None:
        topic = self._policy.dead_letter_topic
        assert topic is not None, "without a topic the policy is to block"
        for entry in self._dead_letters:
            entry.state = DEAD_LETTERING
            letter = DeadLetter(
                entry.offset, entry.message, entry.attempts, entry.reason, topic, entry.count, entry.base
            )
            actions.append(letter)
        self._dead_letters.clear()

    def _set_timer(self, entry: Entry, due_ms: int) -> None:
        entry.due_ms = due_ms
        self._timer_ms = min(self._timer_ms, due_ms)

    def _run_timers(self, now_ms: int) -> None:
        due: list[Entry] = []
        earliest = NEVER
        for entry in self._log:
            if entry.state == SETTLED:
                continue
            if entry.due_ms <= now_ms:
                due.append(entry)
            elif entry.due_ms < earliest:
                earliest = entry.due_ms
        if earliest != NEVER:
            earliest = max(earliest, now_ms + len(self._entries) // _ENTRIES_PER_SCAN_MS)
        self._timer_ms = earliest
        for entry in due:
            if entry.state == AWAITING_ACK:
                self.counters.ack_timeouts += entry.count
                self._fail(entry, now_ms, 0, ACK_TIMEOUT_REASON)
            elif entry.state == WAITING:
                self._make_ready(entry)
            else:
                # A dead letter that could not be published; the policy may have changed since.
                self._apply_poison_policy(entry)

    def validate(self) -> None:
        super().validate()
        outstanding = dict.fromkeys(self._consumers, 0)
        for entry in self._entries.values():
            assert (entry.state == AWAITING_ACK) == (entry.consumer is not None), entry.describe()
            if entry.consumer is not None:
                assert entry.consumer.attached, entry.describe()
                outstanding[entry.consumer.consumer_id] += entry.count
            retried = entry.state == EXHAUSTED and entry not in self._dead_letters
            assert (entry.due_ms != NEVER) == (entry.state in (AWAITING_ACK, WAITING) or retried), (
                entry.describe()
            )
            slack = self._now_ms + len(self._entries) // _ENTRIES_PER_SCAN_MS
            assert self._timer_ms <= max(entry.due_ms, slack), entry.describe()
        window = self._window_limit.messages_max
        sharing = 0
        for consumer in self._consumers.values():
            assert consumer.outstanding == outstanding[consumer.consumer_id], consumer.consumer_id
            assert consumer.credit <= 0 or consumer.credit_bytes > 0, consumer.consumer_id
            assert consumer.attached or consumer.credit == 0, consumer.consumer_id
            if consumer.limit is self._window_limit:
                assert consumer.unacked_max == 0, consumer.consumer_id
                sharing += consumer.outstanding
                continue
            assert consumer.limit.messages_max == consumer.unacked_max > 0, consumer.consumer_id
            assert consumer.limit.left == consumer.unacked_max - consumer.outstanding, consumer.consumer_id
            window += consumer.unacked_max if consumer.attached else 0
        assert self._window_limit.left == self._window_limit.messages_max - sharing
        assert self._messages_max == window, (self._messages_max, window)
        assert self._attached == sum(consumer.attached for consumer in self._consumers.values())
        assert self.blocked == sum(e.count for e in self._entries.values() if e.state == BLOCKED)
        for entry in self._dead_letters:
            assert entry.state == EXHAUSTED, entry.describe()
            assert self._entries[entry.offset] is entry, entry.describe()
