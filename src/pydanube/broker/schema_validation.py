"""Judges what is published to a topic by the topic's schema, before anything is taken.

Most publishes are judged at once, from memory. One whose schema has to be loaded, or whose payloads take
longer than a turn of the event loop may, is held; so is everything the same producer publishes meanwhile,
for its order must not change.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

import structlog

from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.protocol.messages import PublishScan
from pydanube.protocol.native.named_schemas import VERSION_MASK, NamedPayloads
from pydanube.schemas.loaded_schemas import LoadedSchemas
from pydanube.schemas.message_validator import MessageValidator, Reason, Rule, Verdict
from pydanube.schemas.topic_schemas import TopicSchema, ValidationPolicy

log = structlog.get_logger("pydanube.broker")

HELD_BYTES_MAX: Final = 32 * 1024 * 1024
HELD_MAX: Final = 10_000
"""Publishes of one topic that wait to be judged."""
LOADING_SECONDS_MAX: Final = 10.0

MESSAGES_A_TURN_MAX: Final = 500
NOTE_SECONDS: Final = 10.0
"""Between two lines in the log about messages that were accepted all the same."""


class HeldPublish(ABC):
    """A publish that waits to be judged."""

    def __init__(self, producer_id: int, named: NamedPayloads, size: int) -> None:
        self.producer_id = producer_id
        self.named = named
        self.size = size

    @abstractmethod
    def take(self) -> None:
        """It was found good: go on with it, or raise what else is wrong with it."""

    @abstractmethod
    def refuse(self, error: DanubeError) -> None:
        """Tell who waits for it why it was not taken."""


class SchemaJudge:
    """Of one topic. `on_idle` is called when nothing is held any more."""

    def __init__(self, topic: str, loaded: LoadedSchemas, on_idle: Callable[[], None]) -> None:
        self._topic = topic
        self._validator = MessageValidator(loaded, TopicSchema())
        self._on_idle = on_idle
        self._held: dict[int, deque[HeldPublish]] = {}
        """By producer."""
        self._held_count = 0
        self._held_bytes = 0
        self._releasing: set[asyncio.Task[None]] = set()
        self._noted = 0.0
        self._unseen = 0
        self._unseen_from: int | None = 0

    @property
    def config(self) -> TopicSchema:
        return self._validator.config

    def configure(self, config: TopicSchema, messages_in: int) -> None:
        """Judge by another configuration from now on; `messages_in` is what the topic has taken so far."""
        if self._unseen_from is not None:
            self._unseen += messages_in - self._unseen_from
        self._validator.config = config
        is_lax = config.subject is None and config.validation_policy is ValidationPolicy.WARN
        self._unseen_from = messages_in if is_lax else None

    @property
    def is_active(self) -> bool:
        """Whether publishes have to be shown to it."""
        return not (self._validator.is_idle or self._unseen_from is not None) or bool(self._held)

    @property
    def wants_payloads(self) -> bool:
        config = self._validator.config
        return config.enable_payload_validation and config.subject is not None

    def checked(self, policy: ValidationPolicy, messages_in: int) -> int:
        """Messages judged under a policy. Those of a topic without subject are not looked at, but counted."""
        checked = self._validator.checked_under(policy)
        if policy is ValidationPolicy.WARN:
            checked += self._unseen
            if self._unseen_from is not None:
                checked += messages_in - self._unseen_from
        return checked

    @property
    def failures(self) -> dict[Reason, int]:
        return self._validator.failures

    def admits_row(self, producer_id: int, scan: PublishScan, body: bytes) -> bool:
        """As `admits`, of one message."""
        if producer_id in self._held:
            return False
        validator = self._validator
        rule = validator.rule_now(scan.schema_id, scan.schema_version & VERSION_MASK)
        if rule is None:
            return False
        if rule.schema is None:
            verdict = validator.apply_to_all(rule, 1)
        elif scan.payload_bytes > rule.quick_bytes_max:
            return False
        else:
            at = scan.payload_at
            verdict = validator.apply(rule, body[at : at + scan.payload_bytes])
        if verdict.reason is not None:
            self._heed(verdict, 0, 1)
        return True

    def admits(self, producer_id: int, named: NamedPayloads) -> bool:
        """Whether the publish may be taken now; False if it has to be held.

        Raises:
            Rejected: a message is not what the topic's schema asks for.
        """
        if producer_id in self._held:
            return False
        rules: list[Rule] = []
        for schema_id, version in named.schemas:
            rule = self._validator.rule_now(schema_id, version)
            if rule is None:
                return False
            rules.append(rule)
        if _turns(rules, named) > 1:
            return False
        self._judge_run(rules, named, 0, named.count)
        return True

    def hold(self, held: HeldPublish) -> None:
        """Judge a publish as soon as that can be done, after those of the same producer before it."""
        if self._held_count >= HELD_MAX or self._held_bytes + held.size > HELD_BYTES_MAX:
            raise Unavailable(
                f"{self._held_count} publishes to {self._topic} wait for their schemas already: try again shortly",
                ErrorCode.OVERLOADED,
            )
        self._held_count += 1
        self._held_bytes += held.size
        queue = self._held.get(held.producer_id)
        if queue is not None:
            queue.append(held)
            return
        self._held[held.producer_id] = deque([held])
        task = asyncio.get_running_loop().create_task(self._release(held.producer_id))
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)

    async def close(self) -> None:
        """Refuse what is held: the broker is stopping."""
        for task in list(self._releasing):
            task.cancel()
        await asyncio.gather(*self._releasing, return_exceptions=True)

    async def _release(self, producer_id: int) -> None:
        """Judge what is held of a producer, in order, until nothing is."""
        queue = self._held[producer_id]
        try:
            while queue:
                held = queue[0]
                try:
                    await self._judge(held.named)
                    held.take()
                except DanubeError as error:
                    held.refuse(error)
                except Exception:
                    log.exception("a publish could not be judged", topic=self._topic)
                    held.refuse(DanubeError("internal error: see the broker's log", ErrorCode.INTERNAL))
                queue.popleft()
                self._let_go(held)
        finally:
            for held in queue:
                held.refuse(Unavailable("the broker is stopping: reconnect", ErrorCode.STOPPING))
                self._let_go(held)
            del self._held[producer_id]
            if not self._held:
                self._on_idle()

    def _let_go(self, held: HeldPublish) -> None:
        self._held_count -= 1
        self._held_bytes -= held.size

    async def _judge(self, named: NamedPayloads) -> None:
        try:
            async with asyncio.timeout(LOADING_SECONDS_MAX):
                rules = [await self._validator.rule(*schema) for schema in named.schemas]
        except TimeoutError:
            raise Unavailable(
                f"the schemas of a publish to {self._topic} could not be loaded within {LOADING_SECONDS_MAX:g} s: "
                "try again",
                ErrorCode.OVERLOADED,
            ) from None
        for first, last in _runs(rules, named):
            rule = rules[named.which[first] if named.which else 0]
            if last - first == 1 and named.payloads and rule.must_wait(len(named.payloads[first])):
                verdict = await self._validator.apply_aside(rule, named.payloads[first])
                self._heed(verdict, first, named.count)
            else:
                self._judge_run(rules, named, first, last)
                if last < named.count:
                    await asyncio.sleep(0)

    def _judge_run(self, rules: list[Rule], named: NamedPayloads, first: int, last: int) -> None:
        """Judge the messages from `first` to before `last`."""
        validator, which, payloads = self._validator, named.which, named.payloads
        if which is not None:
            for index in range(first, last):
                rule = rules[which[index]]
                # Payloads nobody asked for when the message came are not asked for now either.
                verdict = (
                    validator.apply(rule, payloads[index]) if payloads else validator.apply_to_all(rule, 1)
                )
                self._heed(verdict, index, named.count)
        elif rules[0].schema is None or not payloads:
            self._heed(validator.apply_to_all(rules[0], last - first), first, named.count)
        else:
            with closing(validator.failures_among(rules[0], payloads[first:last])) as failures:
                for place, verdict in failures:
                    self._heed(verdict, first + place, named.count)

    def _heed(self, verdict: Verdict, index: int, count: int) -> None:
        """Refuse the publish if the verdict says so; else tell of it now and then."""
        if verdict.reason is None:
            return
        place = "" if count == 1 else f"message {index} of {count}: "
        if not verdict.accepted:
            is_payload = verdict.reason is Reason.PAYLOAD_INVALID
            raise Rejected(
                f"topic {self._topic} does not take this: {place}{verdict.text}",
                ErrorCode.PAYLOAD_INVALID if is_payload else ErrorCode.SCHEMA_MISMATCH,
            )
        now = asyncio.get_running_loop().time()
        if not self._noted or now - self._noted >= NOTE_SECONDS:
            self._noted = now
            log.warning(
                "message accepted that does not follow the schema",
                topic=self._topic,
                reason=verdict.reason.value,
                problem=place + verdict.text,
                failures=sum(self.failures.values()),
            )


def _turns(rules: list[Rule], named: NamedPayloads) -> float:
    """How many turns of the event loop a batch takes; more than 1 is too much for one."""
    if not named.payloads:
        return 0.0
    turns = named.count / MESSAGES_A_TURN_MAX
    quick = min((rule.quick_bytes_max for rule in rules if rule.schema is not None), default=0)
    if quick:
        turns = max(turns, sum(map(len, named.payloads)) / quick)
    return turns


def _runs(rules: list[Rule], named: NamedPayloads) -> Iterator[tuple[int, int]]:
    """Cut a publish into runs of messages that fit into a turn each."""
    if _turns(rules, named) <= 1:
        yield 0, named.count
        return
    first = 0
    turns = 0.0
    for index, payload in enumerate(named.payloads):
        rule = rules[named.which[index] if named.which else 0]
        cost = 1 / MESSAGES_A_TURN_MAX
        if rule.schema is not None:
            cost = max(cost, len(payload) / rule.quick_bytes_max)
        if turns + cost > 1 and index > first:
            yield first, index
            first, turns = index, 0.0
        turns += cost
    yield first, named.count
