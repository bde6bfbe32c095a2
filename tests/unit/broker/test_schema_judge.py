"""What a judge takes at once, what it holds, and in which order held publishes go on."""

import asyncio
from collections.abc import Callable

import pytest

from pydanube.broker import schema_validation
from pydanube.broker.schema_validation import HeldPublish, SchemaJudge
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.metadata import MemoryStore
from pydanube.protocol.native.named_schemas import NamedPayloads
from pydanube.schemas.format import SchemaKind
from pydanube.schemas.message_validator import Reason
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import TopicSchema, ValidationPolicy
from pydanube.server.process import SystemClock

WARN, ENFORCE = ValidationPolicy.WARN, ValidationPolicy.ENFORCE
STRICT = TopicSchema(subject="text", validation_policy=ENFORCE, enable_payload_validation=True)


class Publish(HeldPublish):
    """Notes what becomes of it."""

    def __init__(self, story: list[str], name: str, producer: int, named: NamedPayloads) -> None:
        super().__init__(producer, named, sum(map(len, named.payloads)))
        self._story = story
        self._name = name

    def take(self) -> None:
        self._story.append(f"{self._name} taken")

    def refuse(self, error: DanubeError) -> None:
        self._story.append(f"{self._name} {error.code.name}")


def messages(*payloads: bytes, schema: tuple[int, int] = (1, 1)) -> NamedPayloads:
    return NamedPayloads(len(payloads), [schema], None, payloads)


def mixed(*named: tuple[int, int, bytes]) -> NamedPayloads:
    schemas = list(dict.fromkeys(each[:2] for each in named))
    return NamedPayloads(
        len(named), schemas, [schemas.index(each[:2]) for each in named], [each[2] for each in named]
    )


@pytest.fixture
async def registry() -> SchemaRegistry:
    """Id 1 is text, in version 2 also an integer; id 2 is another subject's. Nothing is in memory."""
    clock = SystemClock()
    store = MemoryStore(clock)
    registry = SchemaRegistry(store, clock)
    await registry.register("text", SchemaKind.JSON_SCHEMA, b'{"type": "string"}')
    await registry.register("text", SchemaKind.JSON_SCHEMA, b'{"type": ["string", "integer"]}')
    await registry.register("other", SchemaKind.BYTES, b"")
    return SchemaRegistry(store, clock)


@pytest.fixture
def rests() -> list[str]:
    """Grows when the judge has nothing to do any more."""
    return []


@pytest.fixture
def judge(registry: SchemaRegistry, rests: list[str]) -> SchemaJudge:
    judge = SchemaJudge("/default/t", registry.loaded, lambda: rests.append("rest"))
    judge.configure(STRICT, 0)
    return judge


async def settled(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def load(registry: SchemaRegistry) -> None:
    for named in ((1, 1), (1, 2), (2, 1)):
        assert await registry.loaded.load(*named) is not None


async def test_what_is_in_memory_is_judged_at_once(registry: SchemaRegistry, judge: SchemaJudge) -> None:
    assert not judge.admits(7, messages(b'"a"'))
    await load(registry)
    assert judge.admits(7, messages(b'"a"', b'"b"'))
    with pytest.raises(Rejected, match="message 2 of 3") as refused:
        judge.admits(7, messages(b'"a"', b'"b"', b"5"))
    assert refused.value.code is ErrorCode.PAYLOAD_INVALID
    assert judge.checked(ENFORCE, 0) == 5
    assert judge.failures[Reason.PAYLOAD_INVALID] == 1


async def test_every_message_of_a_batch_by_its_own_schema(
    registry: SchemaRegistry, judge: SchemaJudge
) -> None:
    await load(registry)
    assert judge.admits(7, mixed((1, 1, b'"a"'), (1, 2, b"5"), (1, 1, b'"b"')))
    for named, place in (
        (mixed((1, 2, b"5"), (1, 1, b"5")), "message 1 of 2"),
        (mixed((1, 1, b'"a"'), (2, 1, b"x")), "message 1 of 2"),
        (mixed((0, 0, b'"a"'), (1, 1, b"5")), "message 0 of 2"),
    ):
        with pytest.raises(Rejected, match=place):
            judge.admits(7, named)


async def test_a_warning_counts_every_message(registry: SchemaRegistry, judge: SchemaJudge) -> None:
    judge.configure(TopicSchema(subject="text", validation_policy=WARN, enable_payload_validation=True), 0)
    await load(registry)
    assert judge.admits(7, messages(b"5", b'"a"', b"6"))
    assert judge.admits(7, mixed((1, 1, b"5"), (0, 0, b"")))
    assert judge.admits(7, messages(b"", b"", schema=(0, 0)))
    assert (judge.failures[Reason.PAYLOAD_INVALID], judge.failures[Reason.MISSING_SCHEMA_ID]) == (3, 3)
    assert judge.checked(WARN, 0) == 7


async def test_held_publishes_go_on_in_their_order(judge: SchemaJudge, rests: list[str]) -> None:
    story: list[str] = []
    assert not judge.admits(7, messages(b'"a"'))
    judge.hold(Publish(story, "first", 7, messages(b'"a"')))
    assert not judge.admits(7, messages(b"", schema=(2, 1))), "the producer's next one has to wait behind it"
    judge.hold(Publish(story, "second", 7, messages(b"5")))
    judge.hold(Publish(story, "third", 7, messages(b"x", schema=(2, 1))))
    judge.hold(Publish(story, "fourth", 7, messages(b'"b"')))
    await settled(lambda: bool(rests))
    assert story == ["first taken", "second PAYLOAD_INVALID", "third SCHEMA_MISMATCH", "fourth taken"]
    assert judge.admits(7, messages(b'"c"'))


async def test_producers_do_not_wait_for_each_other(
    registry: SchemaRegistry, judge: SchemaJudge, rests: list[str]
) -> None:
    await load(registry)
    story: list[str] = []
    judge.hold(Publish(story, "long", 7, messages(*[b'"a"'] * 5_000)))
    assert judge.admits(8, messages(b'"b"'))
    judge.hold(Publish(story, "short", 8, messages(b'"b"')))
    await settled(lambda: bool(rests))
    assert story == ["short taken", "long taken"]


async def test_what_is_long_to_check_is_held_and_told_by_its_place(
    registry: SchemaRegistry, judge: SchemaJudge, rests: list[str]
) -> None:
    await load(registry)
    payloads = [b'"a"'] * 3_000
    assert not judge.admits(7, messages(*payloads))
    payloads[2_345] = b"5"
    refusals: list[DanubeError] = []
    held = Publish([], "long", 7, messages(*payloads))
    held.refuse = refusals.append  # type: ignore[method-assign]
    judge.hold(held)
    await settled(lambda: bool(rests))
    assert "message 2345 of 3000" in refusals[0].text


async def test_what_is_held_is_bounded(judge: SchemaJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_validation, "HELD_BYTES_MAX", 10)
    story: list[str] = []
    judge.hold(Publish(story, "first", 7, messages(b'"123456"')))
    with pytest.raises(Unavailable) as refused:
        judge.hold(Publish(story, "second", 8, messages(b'"1"')))
    assert refused.value.code is ErrorCode.OVERLOADED
    await settled(lambda: story == ["first taken"])
    judge.hold(Publish(story, "third", 8, messages(b'"1"')))
    await settled(lambda: story == ["first taken", "third taken"])


async def test_a_registry_that_does_not_answer_is_told_of(
    judge: SchemaJudge, registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch, rests: list[str]
) -> None:
    async def never(schema_id: int) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr(registry.loaded, "load_subject", never)
    monkeypatch.setattr(schema_validation, "LOADING_SECONDS_MAX", 0.001)
    story: list[str] = []
    judge.hold(Publish(story, "first", 7, messages(b'"a"')))
    await settled(lambda: bool(rests))
    assert story == ["first OVERLOADED"]


async def test_closing_refuses_what_is_held(judge: SchemaJudge, rests: list[str]) -> None:
    story: list[str] = []
    for name in ("first", "second"):
        judge.hold(Publish(story, name, 7, messages(b'"a"')))
    await asyncio.sleep(0)
    await judge.close()
    assert story == ["first STOPPING", "second STOPPING"]
    assert rests == ["rest"]


async def test_a_judge_rests_only_when_it_holds_nothing(judge: SchemaJudge, rests: list[str]) -> None:
    story: list[str] = []
    judge.hold(Publish(story, "first", 7, messages(b'"a"')))
    judge.configure(TopicSchema(subject="text", validation_policy=ValidationPolicy.NONE), 0)
    assert judge.is_active
    assert not judge.admits(7, messages(b"anything")), "its order must not change"
    judge.hold(Publish(story, "second", 7, messages(b"anything")))
    await settled(lambda: bool(rests))
    assert story == ["first taken", "second taken"]
    assert not judge.is_active


async def test_messages_of_a_topic_without_subject_are_counted_unseen(judge: SchemaJudge) -> None:
    judge.configure(TopicSchema(), 100)
    assert not judge.is_active
    assert judge.checked(WARN, 130) == 30
    judge.configure(STRICT, 140)
    assert judge.is_active
    assert judge.checked(WARN, 150) == 40
    judge.configure(TopicSchema(validation_policy=ENFORCE), 150)
    with pytest.raises(Rejected, match="bound to no subject"):
        judge.admits(7, messages(b""))
