"""Native producers, as an application uses them, that write down what happens to them.

Each session has a client of its own, so one connection is one session. They are patient: no fault may surface as an
error.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from pydanube import client as native
from pydanube.client import Batching, DanubeError, ErrorCode, OutcomeUnknown, QueueFull, Retries
from tests.fault.history import Attempt, End, History, Rule, TopicHistory
from tests.fault.messages import Message, payload_of

PATIENT = Retries(attempts_max=100_000, backoff=0.02, backoff_max=0.3, seconds_max=300)
FENCED_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeHabits:
    """What one native producer sends, and how."""

    bytes_min: int = 10
    bytes_max: int = 1_000
    keys: int = 0
    burst: int = 40
    think_seconds: float = 0.5
    in_flight: int = 400
    timeout_seconds: float = 15.0
    batching: Batching = field(default_factory=Batching)


class _Vanished(Exception):
    """The application is gone, with whatever it had on its way."""


class Session:
    """One opening of a producer. Its messages are numbered from 0; the first `taken` of them are in the topic."""

    def __init__(self, label: str, base: int, in_flight: int) -> None:
        self.label = label
        self.base = base
        """The producer's last sequence before it."""
        self.sent = 0
        self.answers: asyncio.Queue[tuple[Attempt, native.PendingSend] | None] = asyncio.Queue(in_flight)
        self.error: DanubeError | None = None
        """What the first message heard that was not taken."""
        self.refusal: DanubeError | None = None
        """Why it could send no more."""
        self.is_contested = False
        """A newer session opens, or has opened."""


@asynccontextmanager
async def _open_already(producer: native.Producer) -> AsyncIterator[None]:
    """As `async with producer`, for one that is open: left with an error, it does not wait for answers."""
    try:
        yield
    except BaseException as error:
        await producer.__aexit__(type(error), error, None)
        raise
    await producer.__aexit__(None, None, None)


class NativeProducer:
    """An idempotent producer that keeps its name through clean ends, vanishing, and successors that shut it out."""

    def __init__(
        self,
        address: str,
        history: History,
        topic: TopicHistory,
        name: str,
        *,
        habits: NativeHabits,
        dice: random.Random,
        may_send: asyncio.Event,
    ) -> None:
        self._may_send = may_send
        self._address = address
        self._history = history
        self._topic = topic
        self._name = name
        self._habits = habits
        self._dice = dice
        self._sessions = 0
        self._last: Session | None = None
        self._stopping = False
        self.fenced = 0

    def stop(self) -> None:
        self._stopping = True

    async def run(self) -> None:
        """One session after the other until `stop`. The last one ends cleanly, so everything it sent is there."""
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._stopping:
                how: Literal["close", "vanish", "shut out"] = self._dice.choice(
                    ("close", "vanish", "shut out")
                )
                opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
                task = asyncio.create_task(self._session(opened, how, self._dice.uniform(0.5, 6.0)))
                running.add(task)
                await asyncio.wait((task, opened), return_when=asyncio.FIRST_COMPLETED)
                if how != "shut out" or task.done():
                    await task
                    running.discard(task)
                else:
                    # It goes on publishing while the next session opens, which must end it.
                    await self._sleep(self._dice.uniform(0.1, 2.0))
            if running:
                await self._open_and_leave()
            async with asyncio.timeout(FENCED_SECONDS_MAX):
                await asyncio.gather(*running)
        except DanubeError as error:
            self._history.object(Rule.UNCLEAN, f"patient producer {self._name} heard {error!r}")
        except TimeoutError:
            self._history.object(
                Rule.FENCED,
                f"{self._name}: a session that was shut out was not told within {FENCED_SECONDS_MAX} s",
            )
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _open_and_leave(self) -> None:
        opened: asyncio.Future[Session] = asyncio.get_running_loop().create_future()
        await self._session(opened, "close", 0.0)

    async def _session(
        self, opened: "asyncio.Future[Session]", how: Literal["close", "vanish", "shut out"], seconds: float
    ) -> None:
        habits = self._habits
        async with native.connect(self._address, timeout=habits.timeout_seconds, retries=PATIENT) as client:
            producer = client.producer(self._topic.name, name=self._name, batching=habits.batching)
            if self._last is not None:
                self._last.is_contested = True
            await producer.open()
            session = self._opened(producer.last_sequence)
            opened.set_result(session)
            collecting = asyncio.create_task(self._collect(session))
            try:
                with suppress(_Vanished):
                    async with _open_already(producer):
                        await self._play(session, producer, how, seconds)
                await session.answers.put(None)
                await collecting
            finally:
                collecting.cancel()
            self._check_end(session, how)

    async def _play(self, session: Session, producer: native.Producer, how: str, seconds: float) -> None:
        try:
            if how == "shut out":
                while True:  # With nothing to send it would not be told.
                    await self._burst(session, producer)
                    await asyncio.sleep(self._habits.think_seconds * self._dice.random())
            deadline = asyncio.get_running_loop().time() + seconds
            while not self._stopping and asyncio.get_running_loop().time() < deadline:
                await self._burst(session, producer)
                await self._sleep(self._habits.think_seconds * self._dice.random())
            if how == "close":
                await producer.flush()
        except DanubeError as error:
            session.refusal = error
            raise _Vanished from error
        if how == "vanish":
            raise _Vanished

    def _opened(self, last_sequence: int) -> Session:
        """A new session knows how many messages of the one before it the broker has taken."""
        if self._last is not None:
            taken = last_sequence - self._last.base
            if not 0 <= taken <= self._last.sent:
                self._history.object(
                    Rule.FORGOTTEN,
                    f"{self._topic.name} {self._last.label} sent {self._last.sent} messages after sequence "
                    f"{self._last.base}, but the broker is at {last_sequence}",
                )
            self._history.session_ended(self._topic, self._last.label, taken)
        elif last_sequence:
            self._history.object(Rule.PHANTOM, f"{self._name} is new, but the broker is at {last_sequence}")
        session = self._last = Session(
            f"{self._name}.{self._sessions}", last_sequence, self._habits.in_flight
        )
        self._sessions += 1
        self._topic.in_order.add(session.label)
        return session

    async def _burst(self, session: Session, producer: native.Producer) -> None:
        """Send a few without waiting for answers, as one batch or as it comes."""
        await self._may_send.wait()
        habits, dice = self._habits, self._dice
        for _ in range(dice.randint(1, habits.burst) if dice.random() < 0.7 else 1):
            message = Message(session.label, session.sent)
            key = f"key-{dice.randrange(habits.keys)}" if habits.keys else ""
            size = int(habits.bytes_min * (habits.bytes_max / habits.bytes_min) ** dice.random())
            fields: dict[str, Any] = {"key": key} if key else {}
            while True:
                try:
                    pending = producer.send_nowait(payload_of(message, size), **fields)
                    break
                except QueueFull:
                    await producer.ready()
            session.sent += 1
            attempt = self._history.publish_started(self._topic, message, key)
            await session.answers.put((attempt, pending))

    async def _collect(self, session: Session) -> None:
        """Wait for the answers in order and note them."""
        while (item := await session.answers.get()) is not None:
            attempt, pending = item
            try:
                receipt = await pending
            except DanubeError as error:
                session.error = session.error or error
                end = End.UNKNOWN if isinstance(error, OutcomeUnknown) else End.FAIL
                self._history.publish_ended(self._topic, attempt, end)
            else:
                self._history.publish_ended(self._topic, attempt, End.OK, receipt.offset)

    def _check_end(self, session: Session, how: str) -> None:
        error = session.error or session.refusal
        if how == "close" and error is not None:
            self._history.object(Rule.UNCLEAN, f"patient producer {session.label} heard {error!r}")
        if how != "shut out":
            return
        self.fenced += 1
        refusal = session.refusal
        if refusal is None or refusal.code is not ErrorCode.PRODUCER_FENCED or not session.is_contested:
            self._history.object(
                Rule.FENCED,
                f"{session.label} was shut out: {session.is_contested}, could not go on for {refusal!r}",
            )

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but not beyond `stop`."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._stopping and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(min(left, 0.1))
