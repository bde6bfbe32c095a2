"""One story from an empty data directory to a verdict: load, faults, restarts, an audit of everything at the end.

The seed decides the plan: which faults, when, what is sent. The moment a signal meets the broker is the
machine's, so a failed chapter is replayed by its plan, not instruction by instruction; its data is kept.
"""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from tests.fault.broker_process import BrokerFailedError, BrokerProcess
from tests.fault.cast import Cast
from tests.fault.faults import Nemesis
from tests.fault.history import History, Problem, ReaderHistory, Rule, SubscriptionHistory
from tests.fault.messages import Message
from tests.fault.native_consumers import NativeReader
from tests.fault.wire import Wire

PATIENCE_SECONDS = 20.0
"""How long nothing may move before a subscription counts as stuck: less than the 30 s of an ack deadline, which
would heal a message that was sent to nobody."""

Report = Callable[[str], None]


async def play(
    directory: Path, seed: str, *, producers: int, seconds: float, rounds_max: int, report: Report
) -> "Chapter":
    """Play one chapter to its end; its `problems` are the verdict."""
    chapter = Chapter(directory, seed, producers=producers, report=report)
    await chapter.run(seconds=seconds, rounds_max=rounds_max)
    return chapter


class Chapter:
    def __init__(self, directory: Path, seed: str, *, producers: int, report: Report) -> None:
        self.history = History()
        self.rounds = 0
        self._dice = random.Random(seed)
        self._report = report
        self._broker = BrokerProcess(directory)
        self._nemesis = Nemesis(self._broker, self.history, random.Random(self._dice.random()))
        self._wire = Wire(self._broker.address)
        self._weather = random.Random(self._dice.random())
        self._cast = Cast(
            self._broker.address, self.history, random.Random(self._dice.random()), producers=producers
        )

    @property
    def problems(self) -> list[Problem]:
        return self.history.problems

    @property
    def broker_log(self) -> str:
        return self._broker.log_tail()

    def counts(self) -> dict[str, int]:
        return self._cast.counts() | {"cuts": self._wire.troubles}

    async def run(self, *, seconds: float, rounds_max: int) -> None:
        """Do harm for a while, then judge. What went wrong is in `problems`."""
        deadline = asyncio.get_running_loop().time() + seconds
        background: list[asyncio.Task[None]] = []
        try:
            await self._nemesis.start()
            await self._wire.start()
            self._cast.native_address = self._wire.address
            await self._cast.begin()
            self._bad_weather = asyncio.create_task(self._make_weather())
            background = [asyncio.create_task(self._observe()), self._bad_weather]
            while (
                self.rounds < rounds_max
                and asyncio.get_running_loop().time() < deadline
                and not self.problems
            ):
                await self._round()
            if not self.problems:
                await self._end()
        except BrokerFailedError as error:
            self.history.object(Rule.UNCLEAN, str(error))
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if self._broker.is_running:
                await self._broker.kill()
            await self._cast.close()
            await self._wire.close()

    async def _observe(self) -> None:
        while True:
            await asyncio.sleep(1)
            self._nemesis.note_cursors()

    async def _make_weather(self) -> None:
        """Cut and hold up the native clients' connections all the time."""
        while True:
            await asyncio.sleep(self._weather.uniform(0.05, 1.0))
            await self._wire.trouble(self._weather)

    async def _round(self) -> None:
        self.rounds += 1
        await asyncio.sleep(self._dice.choice((0.0, 0.1, 0.5, 1.0, 2.0)) * self._dice.random())
        newcomer = await self._cast.newcomer()
        fault = self._nemesis.choose()
        self._report(f"round {self.rounds}: {fault.__name__}")
        await fault()
        if newcomer is not None:
            # Its registration was confirmed, so its id must be good now.
            await newcomer.publish()
            await newcomer.close()
        if self._dice.random() < 0.6:
            await self._check("round " + str(self.rounds))

    async def _check(self, when: str) -> list[Message]:
        """Wait until every working subscription has got what it is owed, then judge the topics."""
        fences = await self._fence(when)
        if self.problems:
            return fences
        working = [s for s in self.history.subscriptions if s not in self._cast.audits]
        await self._caught_up(working, self._cast.readers, fences, when)
        self._judge(fences)
        return fences

    async def _end(self) -> None:
        """Everything acknowledged; everything read once more from the start; nothing comes again afterwards."""
        self._report("end: publishing stops, everything is acknowledged")
        await self._cast.end_publishing()
        self._bad_weather.cancel()
        for consumer in self._cast.consumers:
            await consumer.acknowledge_everything()
        fences = await self._check("the end")
        if self.problems:
            return
        await self._all_acknowledged(fences)
        await self._without_lag()
        self._report("end: the auditors read everything")
        self._cast.begin_audit()
        await self._caught_up(self._cast.audits, self._cast.reading_again, fences, "the audit")
        self._judge(fences)
        if self.problems:
            return
        self._report("end: a clean stop, after which nothing may come again")
        held = {s: s.topic.offsets[fence] + 1 for s, fence in self._with_fence(fences)}
        self.history.hold(held)
        await self._nemesis.stop()
        fences = await self._check("the epilogue")
        self._judge(fences)

    async def _fence(self, when: str) -> list[Message]:
        try:
            return await self._cast.fence()
        except TimeoutError:
            refusals = [text for fencer in self._cast.fencers for text in fencer.refusals[-2:]]
            self.history.object(
                Rule.STUCK, f"at {when} the broker takes no message: {refusals or 'no answer'}"
            )
            return []

    async def _caught_up(
        self,
        subscriptions: list[SubscriptionHistory],
        readers: list[NativeReader],
        fences: list[Message],
        when: str,
    ) -> None:
        def behind() -> list[ReaderHistory]:
            ends = {fence_topic.name: fence_topic.offsets.get(fence) for fence_topic, fence in by_topic}
            seen = [reader.seen for reader in readers]
            return [r for r in seen if (end := ends[r.topic.name]) is None or r.next_offset <= end]

        def missing() -> dict[SubscriptionHistory, list[int]]:
            found = {s: self.history.missing(s, fence) for s, fence in self._with_fence(fences)}
            return {s: offsets for s, offsets in found.items() if offsets and s in subscriptions}

        by_topic = list(zip(self._cast.topics, fences, strict=True))

        def on_the_way() -> int:
            """After a restart much may come again that is not owed, before the first that is."""
            ends = [(s, s.topic.offsets.get(fence, -1)) for s, fence in self._with_fence(fences)]
            return sum(offset <= end for s, end in ends for offset in s.delivered)

        if await self._until(lambda: sum(map(len, missing().values())) + len(behind()), on_the_way):
            for reader in behind():
                self.history.object(Rule.STUCK, f"at {when} {reader} stands at {reader.next_offset}")
            for subscription, offsets in missing().items():
                end = subscription.topic.offsets.get(dict(self._with_fence(fences))[subscription])
                rule = Rule.SKIPPED if end in subscription.delivered else Rule.STUCK
                self.history.object(
                    rule,
                    f"at {when}, life {self.history.life}, {subscription} never got "
                    f"{len(offsets)} offsets such as {offsets[:10]} of 0 to {end}",
                )

    async def _all_acknowledged(self, fences: list[Message]) -> None:
        working = [s for s in self.history.subscriptions if s not in self._cast.audits]

        def unanswered() -> int:
            return sum(len(self.history.unanswered(s)) for s in working)

        if await self._until(unanswered):
            left = {str(s): found[:5] for s in working if (found := self.history.unanswered(s))}
            self.history.object(Rule.STUCK, f"delivered, but no ack of it was ever confirmed: {left}")

    async def _without_lag(self) -> None:
        """Everything is acknowledged, so the broker must not think that anything is left."""
        audited = {(s.topic.name, s.name) for s in self._cast.audits}

        async def lagging() -> dict[tuple[str, str], int]:
            return {
                who: lag for who, lag in (await self._broker.lags()).items() if lag and who not in audited
            }

        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while (left := await lagging()) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.1)
        if left:
            self.history.object(
                Rule.STUCK, f"everything was acknowledged, but the broker says what lags: {left}"
            )

    async def _until(self, left: Callable[[], int], moving: Callable[[], int] = int) -> bool:
        """Wait until nothing is left; True if for too long that number and `moving` stood still."""
        clock = asyncio.get_running_loop().time
        last, moved = (left(), moving()), clock()
        while last[0] and not self.problems:
            if clock() - moved > PATIENCE_SECONDS:
                return True
            await asyncio.sleep(0.05)
            if (now := (left(), moving())) != last:
                last, moved = now, clock()
        return False

    def _with_fence(self, fences: list[Message]) -> list[tuple[SubscriptionHistory, Message]]:
        by_topic = dict(zip((topic.name for topic in self._cast.topics), fences, strict=True))
        return [(s, by_topic[s.topic.name]) for s in self.history.subscriptions]

    def _judge(self, fences: list[Message]) -> None:
        if not self.problems:
            for topic, fence in zip(self._cast.topics, fences, strict=True):
                self.history.judge(topic, fence)
