"""A subscription of a reliable topic: feeds its machine from the log and performs what the machine decides.

Every event (a commit, an ack, a stream opened, a timer) puts the subscription on the agenda; once per tick
`run` reads what the window has room for, asks the machine, sends, and notes the cursor. Messages that left
memory are read by a background task, one at a time; meanwhile acks and redeliveries go on.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import structlog

from pydanube.broker.agenda import Agenda
from pydanube.broker.batches import timed_rows
from pydanube.broker.dead_letters import DeadLetter, DeadLetters
from pydanube.broker.sessions import Consumer, Session
from pydanube.broker.subscription import Subscription
from pydanube.dispatch import actions, reliable_subscription
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import FailurePolicy, SubscriptionType
from pydanube.log.tail import Row
from pydanube.log.topic_log import TopicLog
from pydanube.protocol.messages import routing_key
from pydanube.protocol.native.batch import message_count
from pydanube.protocol.native.timing import timing

log = structlog.get_logger("pydanube.broker")

READ_AHEAD_BYTES_MAX = 1024 * 1024
READ_AHEAD_MESSAGES_MAX = 4_000
"""What is read at once for consumers that take rows: many small ones, as a read has a cost of its own. Those that take
batches get more at once."""
BATCHES_AHEAD_BYTES_MAX = 4 * 1024 * 1024
BATCHES_AHEAD_MESSAGES_MAX = 100_000
READ_RETRY_MS = 5_000
"""Pause before stored history that could not be read is tried again."""


class DurableSubscription(Subscription):
    """Driver of one `dispatch.ReliableSubscription`."""

    def __init__(
        self,
        name: str,
        kind: SubscriptionType,
        *,
        topic_name: TopicName,
        topic_log: TopicLog,
        initial_cursor: int,
        failure_policy: FailurePolicy,
        max_unacked_messages: int,
        dispatch_rate: int,
        agenda: Agenda,
        clock: Clock,
        dead_letters: DeadLetters,
    ) -> None:
        super().__init__(name, kind, topic_name, initial_cursor=initial_cursor)
        self.is_listed = False
        self.read_errors = 0
        self.failure_policy = failure_policy
        self.max_unacked_messages = max_unacked_messages
        """Read only, both: change them by `set_failure_policy` and `set_window`."""
        self._topic = str(topic_name)
        self._log = topic_log
        self._agenda = agenda
        self._clock = clock
        self._dead_letters = dead_letters
        # A cursor is never ahead of what the log still has, whatever a lost disk cache took away.
        cursor = min(max(initial_cursor, topic_log.cursors.get(name, -1)), topic_log.next_offset - 1)
        self.machine = reliable_subscription(
            kind,
            cursor=cursor,
            window=max_unacked_messages,
            policy=failure_policy,
            dispatch_rate=dispatch_rate,
        )
        self._saved_cursor = cursor
        self._needs_key = kind is SubscriptionType.KEY_SHARED
        self._has_one_active = kind in (SubscriptionType.EXCLUSIVE, SubscriptionType.FAILOVER)
        self._is_paced = dispatch_rate > 0
        self._sessions: dict[int, Session] = {}
        self._takes_batches = False
        """Whether everybody who is attached can be sent a batch whole."""
        self._ahead: deque[Row] = deque()
        """What was read, or taken apart, and not offered yet."""
        self._reading: asyncio.Task[None] | None = None
        self._read_not_before_ms = 0
        self._wake_at_ms = 0
        self._waker: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def cursor(self) -> int:
        return self.machine.cursor

    @property
    def next_offset(self) -> int:
        return self.machine.cursor + 1

    @property
    def lag(self) -> int:
        """Messages in the log that are not settled here."""
        return self._log.committed_end - 1 - self.machine.cursor

    def ack(self, first: int, last: int) -> None:
        now = self._clock.monotonic_ms()
        if first == last:
            self.machine.ack(first, now)
        else:
            self.machine.ack_range(first, last, now)
        self._agenda.add(self)

    def nack(self, first: int, last: int, *, delay_ms: int, reason: str | None) -> None:
        self.machine.nack_range(first, last, self._clock.monotonic_ms(), delay_ms, reason)
        self._agenda.add(self)

    def seek(self, next_offset: int) -> None:
        """Go on at that offset, whatever was consumed or is outstanding."""
        self.machine.seek(next_offset)
        self._ahead.clear()
        self._saved_cursor = next_offset - 1
        self._log.reset_cursor(self.name, next_offset - 1)
        now = self._clock.monotonic_ms()
        for session in list(self._sessions.values()):
            if session.outlet.seeked(next_offset):
                self._grant(session)
            else:
                self.close_session(session.consumer, now)
        self._agenda.add(self)

    def set_failure_policy(self, policy: FailurePolicy) -> None:
        """Treat failures by another policy from now on; it judges anew what stands still."""
        self.failure_policy = policy
        self.machine.set_policy(policy)
        self._agenda.add(self)

    def set_window(self, max_unacked_messages: int) -> None:
        self.max_unacked_messages = max_unacked_messages
        self.machine.set_window(max_unacked_messages)
        self._agenda.add(self)

    def set_dispatch_rate(self, rate: int) -> None:
        self._is_paced = rate > 0
        self.machine.set_dispatch_rate(rate)
        self._agenda.add(self)

    def drained(self, session: Session) -> None:
        if self._sessions.get(session.consumer.id) is session:
            self._grant(session)
            self._agenda.add(self)

    def tick(self) -> None:
        """The regular look: deadlines, retries, and anything a lost wake-up left behind."""
        self.machine.tick(self._clock.monotonic_ms())
        self._agenda.add(self)

    def run(self) -> None:
        """Feed the machine, do what it decides, until there is nothing more to do now."""
        if self._is_closed:
            return
        machine = self.machine
        now = self._clock.monotonic_ms()
        machine.tick(now)
        while True:
            self._feed(now)
            decided = machine.actions(now)
            if not decided:
                break
            self._perform(decided)
        if machine.cursor != self._saved_cursor:
            self._saved_cursor = machine.cursor
            self._log.save_cursor(self.name, machine.cursor)
        self._wake_when_due(now)

    def close(self) -> None:
        """Stop timers and reads; the saved cursor is all that remains."""
        self._is_closed = True
        if self._waker is not None:
            self._waker.cancel()
        if self._reading is not None:
            self._reading.cancel()

    # ── feeding ─────────────────────────────────────────────────────────────────────────────────

    def _feed(self, now_ms: int) -> None:
        machine, topic_log = self.machine, self._log
        if machine.next_offset < topic_log.start_offset:
            log.warning(
                "retention overtook a subscription",
                topic=self._topic,
                subscription=self.name,
                skipped=topic_log.start_offset - machine.next_offset,
            )
            machine.skip_to(topic_log.start_offset)
        if not any(session.outlet.room() for session in self._sessions.values()):
            return  # nobody could be sent anything: what is not read stays in the log, not in memory
        room = machine.room()
        while room > 0 and machine.next_offset < topic_log.committed_end:
            rows = self._rows_ahead(room)
            if rows is None:
                rows = topic_log.read(machine.next_offset, messages_max=room, bytes_max=READ_AHEAD_BYTES_MAX)
            if rows is None:
                self._read_behind(now_ms)
                return
            for number, row in enumerate(rows):
                base, body, append_ms, is_timed = row
                if body[0] == 0 and not self._takes_batches:
                    self._take_apart(row, rows[number + 1 :])
                    break
                if body[0] == 0 or is_timed:
                    self._offer_range(row, now_ms)
                else:
                    key = routing_key(body) if self._needs_key else b""
                    machine.offer(base, body, key, 1, -1, 0, 0, append_ms)
            room = machine.room()

    def _offer_range(self, row: Row, now_ms: int) -> None:
        """A batch, but for the part of it consumed before a restart or a seek; or one message with times."""
        base, body, append_ms, is_timed = row
        machine = self.machine
        offset = machine.next_offset
        count = base + message_count(body) - offset
        key = routing_key(body) if self._needs_key else b""
        not_before, expires = self._times(body, append_ms, now_ms) if is_timed else (0, 0)
        machine.offer(offset, body, key, count, base, not_before, expires, append_ms)

    def _times(self, body: bytes, append_ms: int, now_ms: int) -> tuple[int, int]:
        """From when and until when the messages may be sent, on the machine's clock; 0: no such limit."""
        deliver_at, deliver_after, ttl = timing(body)
        shift = now_ms - self._clock.now_ms()
        if deliver_after:
            deliver_at = max(deliver_at, append_ms + deliver_after)
        # What expired before the machine's clock began did so at a negative time; 0 would be no limit.
        expires = (append_ms + ttl + shift or -1) if ttl else 0
        return max(deliver_at + shift, 1) if deliver_at else 0, expires

    def _take_apart(self, row: Row, behind: list[Row]) -> None:
        """Put the messages of a batch, one by one, in front of what was read behind it."""
        base, body, append_ms, is_timed = row
        skip = self.machine.next_offset - base
        messages = timed_rows(body, self._topic, skip, message_count(body) - skip, append_ms)
        self._ahead.extendleft(reversed(behind))
        self._ahead.extendleft(
            [
                (base + skip + number, messages[number][0], messages[number][1], is_timed)
                for number in range(len(messages) - 1, -1, -1)
            ]
        )

    def _rows_ahead(self, room: int) -> list[Row] | None:
        """What was read before, if it fits where the machine is."""
        ahead = self._ahead
        next_offset = self.machine.next_offset
        while ahead and ahead[0][0] < next_offset and not _holds(ahead[0], next_offset):
            ahead.popleft()
        if not ahead or ahead[0][0] > next_offset:
            ahead.clear()
            return None
        return [ahead.popleft() for _ in range(min(room, len(ahead)))]

    def _read_behind(self, now_ms: int) -> None:
        if self._reading is None and now_ms >= self._read_not_before_ms:
            self._reading = asyncio.get_running_loop().create_task(self._read_cold(self.machine.next_offset))

    async def _read_cold(self, offset: int) -> None:
        try:
            if self._takes_batches:
                rows = await self._log.read_cold(
                    offset,
                    messages_max=BATCHES_AHEAD_MESSAGES_MAX,
                    bytes_max=BATCHES_AHEAD_BYTES_MAX,
                    merged_max=self._merged_max(),
                )
            else:
                rows = await self._log.read_cold(
                    offset, messages_max=READ_AHEAD_MESSAGES_MAX, bytes_max=READ_AHEAD_BYTES_MAX
                )
            self._ahead = deque(rows)
        except DanubeError as error:
            # Never skipped: the subscription waits until the bytes can be read, or an operator decides.
            self.read_errors += 1
            self._read_not_before_ms = self._clock.monotonic_ms() + READ_RETRY_MS
            log.error(
                "stored messages cannot be read",
                topic=self._topic,
                subscription=self.name,
                offset=offset,
                error=error.text,
            )
        finally:
            self._reading = None
            self._agenda.add(self)

    def _merged_max(self) -> int:
        # Where several take turns, messages that came one by one are shared out one by one; at a set pace they leave so.
        if not self._has_one_active or self._is_paced:
            return 0
        return min([session.outlet.merged_max for session in self._sessions.values()], default=0)

    # ── acting ──────────────────────────────────────────────────────────────────────────────────

    def _perform(self, decided: Sequence[actions.Action]) -> None:
        served: set[int] = set()
        for action in decided:
            if isinstance(action, actions.Deliver):
                session = self._sessions[action.consumer_id]
                base = action.base
                session.outlet.send(
                    base,
                    action.append_ms,
                    action.offset - base,
                    action.count,
                    action.attempt,
                    action.message,
                )
                served.add(action.consumer_id)
                self.messages_out += action.count
                self.bytes_out += len(action.message)
            else:
                self._send_dead_letter(action)
        for consumer_id in served:
            self._grant(self._sessions[consumer_id])

    def _grant(self, session: Session) -> None:
        outlet = session.outlet
        self.machine.grant(session.consumer.id, outlet.room(), outlet.room_bytes())

    def _send_dead_letter(self, action: actions.DeadLetter) -> None:
        letter = DeadLetter(
            target=action.topic,
            topic=self._topic,
            subscription=self.name,
            offset=action.offset,
            count=action.count,
            base=action.base,
            message=action.message,
            attempts=action.attempts,
            reason=action.reason,
        )

        def done(published: bool) -> None:
            self.machine.dead_lettered(action.offset, published)
            self._agenda.add(self)

        self._dead_letters.send(letter, done)

    def _wake_when_due(self, now_ms: int) -> None:
        """Come back exactly when the machine's next deadline or retry is due."""
        due = self.machine.next_wake_ms()
        if due is None or (self._waker is not None and now_ms < self._wake_at_ms <= due):
            return
        if self._waker is not None:
            self._waker.cancel()
        self._wake_at_ms = due
        delay = max(due - now_ms, 1) / 1_000
        self._waker = asyncio.get_running_loop().call_later(delay, self._woken)

    def _woken(self) -> None:
        self._waker = None
        self.tick()

    # ── consumers ───────────────────────────────────────────────────────────────────────────────

    def _joined(self, consumer: Consumer) -> None:
        self.machine.join(consumer.id, filters=consumer.key_filters)

    def _left(self, consumer: Consumer) -> None:
        self.machine.leave(consumer.id)
        self._agenda.add(self)

    def _attached(self, session: Session, now_ms: int) -> None:
        consumer_id = session.consumer.id
        self._sessions[consumer_id] = session
        self._judge_sessions()
        self.machine.attach(consumer_id, now_ms, session.outlet.unacked_max)
        self._grant(session)
        self._agenda.add(self)

    def _detached(self, consumer: Consumer, now_ms: int) -> None:
        if self._sessions.pop(consumer.id, None) is not None:
            self._judge_sessions()
            self.machine.detach(consumer.id, now_ms)
            self._agenda.add(self)

    def _judge_sessions(self) -> None:
        # Keys belong to single messages, and one consumer that knows rows only may get any of them.
        self._takes_batches = not self._needs_key and all(
            session.outlet.takes_batches for session in self._sessions.values()
        )


def _holds(row: Row, offset: int) -> bool:
    """Whether the entry, which begins before that offset, reaches it."""
    base, body = row[0], row[1]
    return body[0] == 0 and base + message_count(body) > offset
