"""The publishes of one topic in their order: numbered, sent, answered, repeated. No I/O, no clock.

Order and numbers. Publishes leave in the order they came and are answered one by one. With sequences (idempotent), the
broker takes exactly the next number, so once it refuses a publish it refuses those behind it as well. The queue then
holds: nothing new leaves until everything on its way is answered, and `rewind` puts what is to be repeated in front,
in order.

A publish the broker refused was not taken, so it may get another number; the ones behind a publish that failed for good
must, to close the gap. One that may have been taken keeps its number: under that number the broker knows it and will
not take it twice. If numbers have to change nevertheless, while an old connection may still carry the old ones, only
a new session is safe, because it shuts the old one out. `reopened` says when.

Without sequences, a publish whose answer is lost fails, and one that was refused is repeated only while nothing behind
it was taken.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from pydanube.client.errors import Refused
from pydanube.client.outgoing import Publish
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, OutcomeUnknown, Rejected, Unavailable


class Failed(NamedTuple):
    """A publish that is over, without success."""

    publish: Publish
    error: DanubeError


class PublishQueue:
    """What was not answered yet."""

    def __init__(self, topic: str, *, idempotent: bool) -> None:
        self._topic = topic
        self._idempotent = idempotent
        self._added = 0
        self._waiting: deque[Publish] = deque()
        self._on_the_way: dict[int, Publish] = {}
        """By request number, in the order of sending."""
        self._set_aside: list[Publish] = []
        """Refused, to be repeated."""
        self.last_sequence = 0
        """Highest number the broker is known to have."""
        self._next_sequence = 1
        self.is_held = False
        self.needs_new_session = True
        self.fatal: DanubeError | None = None
        """Why this producer can never publish again."""

    @property
    def is_idle(self) -> bool:
        return not (self._waiting or self._on_the_way or self._set_aside)

    @property
    def is_drained(self) -> bool:
        """Nothing is on its way, so a held queue may be rewound."""
        return not self._on_the_way

    def pending(self) -> list[Publish]:
        """Everything unanswered, in order."""
        return _in_order([*self._on_the_way.values(), *self._set_aside]) + list(self._waiting)

    def oldest_sent(self) -> Publish | None:
        return next(iter(self._on_the_way.values()), None)

    def add(self, publish: Publish) -> None:
        self._added += 1
        publish.order = self._added
        self._waiting.append(publish)

    def peek(self) -> Publish | None:
        """The next one to send; None while there is none or the queue is held."""
        return self._waiting[0] if self._waiting and not self.is_held else None

    def drop(self) -> Publish:
        """Take out the one `peek` shows: it cannot be sent at all."""
        return self._waiting.popleft()

    def sent(self, request: int) -> Publish:
        """The one `peek` shows goes out under this request number."""
        publish = self._waiting.popleft()
        if self._idempotent and publish.sequence == 0:
            publish.sequence = self._next_sequence
            self._next_sequence += publish.count
        publish.request = request
        publish.may_be_taken = True
        self._on_the_way[request] = publish
        return publish

    def published(self, request: int, messages: int) -> tuple[Publish, list[Failed]]:
        """The broker took it. Also returns what can no longer be repeated because it would come out of order.

        Raises:
            Rejected: this answers nothing that was sent.
        """
        publish = self._on_the_way.get(request)
        if publish is None or publish.count != messages:
            raise Rejected(
                f"{self._topic}: the broker took {messages} messages of publish {request}, which was not sent so",
                ErrorCode.PROTOCOL_VIOLATION,
            )
        del self._on_the_way[request]
        if self._idempotent:
            self.last_sequence = max(self.last_sequence, publish.sequence + publish.count - 1)
            return publish, []
        overtaken, self._set_aside = self._set_aside, []
        text = f"{self._topic}: refused, and a later publish was taken, so repeating would change the order"
        return publish, [Failed(refused, Unavailable(text, ErrorCode.OVERLOADED)) for refused in overtaken]

    def refused(self, request: int, refused: Refused) -> tuple[Publish, list[Failed]]:
        """The broker did not take it. Returns which one, and all those that fail by this.

        Raises:
            Rejected: this answers nothing that was sent.
        """
        publish = self._on_the_way.pop(request, None)
        if publish is None:
            raise Rejected(
                f"{self._topic}: the broker refused publish {request}, which was not sent",
                ErrorCode.PROTOCOL_VIOLATION,
            )
        self.is_held = True
        error = refused.error
        publish.may_be_taken = isinstance(error, OutcomeUnknown)
        if error.code is ErrorCode.PRODUCER_FENCED:
            self._set_aside.append(publish)
            return publish, self.end(error)
        if refused.expected_sequence is not None and self._idempotent:
            if refused.expected_sequence > publish.sequence and not self._on_the_way:
                self._set_aside.append(publish)
                return publish, self.end(self._foreign_sequence(refused.expected_sequence))
            # Tells also of a broker that lost what it once had: then numbers go on from there.
            self.last_sequence = min(self.last_sequence, refused.expected_sequence - 1)
        elif not (isinstance(error, Unavailable) or (publish.may_be_taken and self._idempotent)):
            publish.sequence = 0
            return publish, [Failed(publish, error)]
        self._set_aside.append(publish)
        return publish, []

    def rewind(self) -> bool:
        """Go on after a refusal, when everything on its way has been answered. False: not in this session."""
        assert not self._on_the_way, "rewound while publishes are on their way"
        self._put_in_front(self._set_aside)
        self._set_aside = []
        self.is_held = False
        if self._must_renumber_what_may_be_taken(self.last_sequence):
            self.needs_new_session = True
            return False
        self._number_waiting(self.last_sequence)
        return True

    def lost(self) -> list[Failed]:
        """The channel is gone. Without sequences, what was on its way fails; with them, it is repeated."""
        on_the_way = list(self._on_the_way.values())
        self._on_the_way.clear()
        self.is_held = False
        if self._idempotent:
            self._put_in_front([*on_the_way, *self._set_aside])
            self._set_aside = []
            return []
        self._put_in_front(self._set_aside)
        self._set_aside = []
        text = f"{self._topic}: the connection was lost before the answer; whether the messages were taken is not known"
        return [Failed(publish, OutcomeUnknown(text)) for publish in on_the_way]

    def reopened(self, last_sequence: int) -> bool:
        """A channel is open again; the broker's highest number is given.

        False: what is pending cannot go on in the old session. Open a new one, then call again.
        """
        is_new, self.needs_new_session = self.needs_new_session, False
        if not self._idempotent:
            return True
        if is_new:
            for publish in self._waiting:
                publish.may_be_taken = publish.may_be_taken and _last(publish) <= last_sequence
        elif last_sequence >= self._next_sequence:
            self.fatal = self._foreign_sequence(last_sequence + 1)
            return True
        if self._must_renumber_what_may_be_taken(last_sequence):
            self.needs_new_session = True
            return False
        self.last_sequence = last_sequence
        self._number_waiting(last_sequence)
        return True

    def end(self, error: DanubeError) -> list[Failed]:
        """Never publish again; everything pending fails with the error."""
        self.fatal = error
        return self.give_up(error)

    def give_up(self, error: DanubeError) -> list[Failed]:
        """Patience is over: everything pending fails, each saying whether it may have been taken."""
        failed = [Failed(publish, self._given_up(publish, error)) for publish in self.pending()]
        self._waiting.clear()
        self._on_the_way.clear()
        self._set_aside.clear()
        self.is_held = False
        # Old numbers may still be on an old connection: only a new session shuts them out.
        self.needs_new_session = True
        return failed

    def _given_up(self, publish: Publish, error: DanubeError) -> DanubeError:
        if not publish.may_be_taken:
            return error
        return OutcomeUnknown(f"{self._topic}: the messages may have been taken; then: {error}")

    def _put_in_front(self, publishes: Iterable[Publish]) -> None:
        self._waiting.extendleft(reversed(_in_order(publishes)))

    def _number_waiting(self, last_sequence: int) -> None:
        """Give numbers without a gap from `last_sequence` on to all that had one, and to the next that will."""
        following = last_sequence + 1
        for publish in self._waiting:
            if publish.sequence == 0:
                break
            if publish.may_be_taken and _last(publish) <= last_sequence:
                continue
            publish.sequence = following
            following += publish.count
        self._next_sequence = following

    def _must_renumber_what_may_be_taken(self, last_sequence: int) -> bool:
        following = last_sequence + 1
        for publish in self._waiting:
            if publish.sequence == 0:
                break
            if publish.may_be_taken and _last(publish) <= last_sequence:
                continue
            if publish.may_be_taken and publish.sequence != following:
                return True
            following += publish.count
        return False

    def _foreign_sequence(self, expected: int) -> DanubeError:
        return Conflict(
            f"{self._topic}: the broker waits for sequence {expected}, this producer is at {self._next_sequence}: "
            "somebody else publishes under the same producer name; give each producer its own",
            ErrorCode.PRODUCER_FENCED,
        )


def _last(publish: Publish) -> int:
    return publish.sequence + publish.count - 1


def _in_order(publishes: Iterable[Publish]) -> list[Publish]:
    return sorted(publishes, key=lambda publish: publish.order)
