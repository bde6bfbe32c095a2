"""Schemas that are not there: asked for once in a while, not with every message."""

import asyncio

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.metadata import MetadataStore
from pydanube.schemas.format import SchemaKind
from pydanube.schemas.loaded_schemas import UNKNOWN_MS
from pydanube.schemas.message_validator import MessageValidator, Reason
from pydanube.schemas.recently_unknown import RecentlyUnknown
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import TopicSchema, ValidationPolicy


class Clock:
    def __init__(self) -> None:
        self.time_ms = 1_000

    def now_ms(self) -> int:
        return self.time_ms

    def monotonic_ms(self) -> int:
        return self.time_ms


class CountedStore:
    """Counts the reads of a store."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self.reads = 0

    async def get(self, key: str):
        self.reads += 1
        return await self._store.get(key)

    def __getattr__(self, name: str):
        return getattr(self._store, name)


@pytest.fixture
def time() -> Clock:
    return Clock()


@pytest.fixture
def store(metadata: MetadataStore) -> CountedStore:
    return CountedStore(metadata)


@pytest.fixture
def asked(store: CountedStore, time: Clock) -> SchemaRegistry:
    return SchemaRegistry(store, time)  # type: ignore[arg-type]


def test_the_cache_forgets_after_its_time_and_the_oldest_beyond_its_bound() -> None:
    clock = Clock()
    unknown: RecentlyUnknown[int] = RecentlyUnknown(count_max=2, ms=10, now_ms=clock.now_ms)
    for key in (1, 2, 3):
        unknown.note(key, f"no {key}")
    assert [unknown.reason(key) for key in (1, 2, 3)] == [None, "no 2", "no 3"]
    clock.time_ms += 10
    assert unknown.reason(3) is None
    unknown.note(4, "no 4")
    unknown.clear()
    assert unknown.reason(4) is None


async def test_an_unknown_id_is_looked_for_once_in_a_while(
    asked: SchemaRegistry, store: CountedStore, time: Clock
) -> None:
    for _ in range(5):
        with pytest.raises(Rejected, match="no schema has id 7"):
            await asked.get(7)
    assert store.reads == 1
    time.time_ms += UNKNOWN_MS
    assert await asked.loaded.load_subject(7) is None
    assert store.reads == 2


async def test_messages_that_name_an_unknown_schema_are_judged_from_memory(
    asked: SchemaRegistry, store: CountedStore
) -> None:
    await asked.register("orders", SchemaKind.STRING, b"")
    config = TopicSchema(
        subject="orders", validation_policy=ValidationPolicy.ENFORCE, enable_payload_validation=True
    )
    validator = MessageValidator(asked.loaded, config)
    for schema_id, version, text in ((9, 1, "no schema has id 9"), (1, 8, "has no version 8")):
        assert validator.check_now(schema_id, version, b"") is None
        slow = await validator.check(schema_id, version, b"")
        reads = store.reads
        for _ in range(5):
            fast = validator.check_now(schema_id, version, b"")
            assert fast == slow
            assert await validator.check(schema_id, version, b"") == slow
        assert store.reads == reads
        assert (slow.accepted, slow.reason) == (False, Reason.UNKNOWN_SCHEMA)
        assert text in slow.text


async def test_a_registration_is_known_at_once(asked: SchemaRegistry) -> None:
    assert await asked.loaded.load(1, 1) is None
    assert await asked.loaded.load(1, 2) is None
    await asked.register("orders", SchemaKind.JSON_SCHEMA, b"{}")
    assert await asked.loaded.load(1, 1) is not None
    assert await asked.loaded.load(1, 2) is None
    await asked.register("orders", SchemaKind.JSON_SCHEMA, b'{"title": "second"}')
    assert await asked.loaded.load(1, 2) is not None


async def test_a_registration_of_another_broker_is_known_when_it_is_heard_of(
    asked: SchemaRegistry, metadata: MetadataStore, time: Clock
) -> None:
    following = asyncio.create_task(asked.loaded.follow())
    try:
        async with asyncio.timeout(10):
            while not asked.loaded.is_following:
                await asyncio.sleep(0)
            assert await asked.loaded.load(1, 1) is None
            await SchemaRegistry(metadata, time).register("orders", SchemaKind.STRING, b"")
            while await asked.loaded.load(1, 1) is None:
                await asyncio.sleep(0)
    finally:
        following.cancel()
