"""Subjects, ids, versions, duplicates, deletion: what the registry remembers."""

import asyncio
import json

import pytest

from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.metadata import MetadataStore
from pydanube.schemas import parsing, subjects
from pydanube.schemas import registry as registry_module
from pydanube.schemas.format import CompatibilityMode, SchemaKind
from pydanube.schemas.registry import SchemaRegistry

AVRO = SchemaKind.AVRO


def record(*fields: str) -> bytes:
    """An Avro record whose fields are all optional ints."""
    parts = [{"name": name, "type": "int", "default": 0} for name in fields]
    return json.dumps({"type": "record", "name": "Order", "fields": parts}).encode()


async def code_of(call) -> ErrorCode:
    with pytest.raises(DanubeError) as caught:
        await call
    return caught.value.code


async def test_ids_belong_to_subjects_and_versions_count(registry: SchemaRegistry) -> None:
    first = await registry.register("orders", AVRO, record("a"))
    assert (first.schema_id, first.version, first.is_new_version) == (1, 1, True)
    second = await registry.register("orders", AVRO, record("a", "b"))
    assert (second.schema_id, second.version, second.is_new_version) == (1, 2, True)
    other = await registry.register("payments", AVRO, record("a"))
    assert (other.schema_id, other.version) == (2, 1)
    assert other.fingerprint == first.fingerprint


async def test_the_same_schema_is_not_a_new_version(registry: SchemaRegistry) -> None:
    first = await registry.register("orders", AVRO, record("a"), description="one")
    await registry.register("orders", AVRO, record("a", "b"))
    spaced = record("a").replace(b",", b" ,\n ")
    again = await registry.register("orders", AVRO, spaced, description="two")
    assert (again.version, again.is_new_version, again.fingerprint) == (1, False, first.fingerprint)
    assert [one.description for _, one in await registry.versions("orders")] == ["one", ""]


async def test_a_duplicate_is_known_although_it_would_be_incompatible_now(registry: SchemaRegistry) -> None:
    without_default = b'{"type": "record", "name": "Order", "fields": [{"name": "a", "type": "int"}]}'
    await registry.register("orders", AVRO, without_default)
    await registry.register("orders", AVRO, record())
    assert (await registry.register("orders", AVRO, without_default)).version == 1


async def test_one_text_in_two_formats_is_two_schemas(registry: SchemaRegistry) -> None:
    await registry.register("s", AVRO, b'{"type":"string"}')
    await registry.set_mode("s", CompatibilityMode.NONE)
    assert (await registry.register("s", SchemaKind.JSON_SCHEMA, b'{"type":"string"}')).is_new_version


async def test_what_is_registered_can_be_read_in_every_way(registry: SchemaRegistry) -> None:
    await registry.register("orders", AVRO, record("a"), description="why", created_by="who", tags=["x", "y"])
    await registry.register("orders", AVRO, record("a", "b"))
    first, latest = await registry.get(1, 1), await registry.latest("orders")
    assert (first.subject, first.schema_id, first.definition) == ("orders", 1, record("a"))
    assert first.mode is CompatibilityMode.BACKWARD
    assert (first.record.description, first.record.created_by, first.record.tags) == (
        "why",
        "who",
        ("x", "y"),
    )
    assert first.record.created_at == 1_700_000_000
    assert latest == await registry.get(1) == await registry.get(1, 2)
    assert [(number, one.version) for number, one in await registry.versions("orders")] == [(1, 1), (1, 2)]
    assert await registry.schema_id("orders") == 1
    assert await registry.schema_id("absent") is None


async def test_versions_are_in_numeric_order(registry: SchemaRegistry) -> None:
    for count in range(12):
        await registry.register("orders", AVRO, record(*(f"f{n}" for n in range(count))))
    assert [one.version for _, one in await registry.versions("orders")] == list(range(1, 13))


async def test_unknown_names_and_numbers(registry: SchemaRegistry) -> None:
    await registry.register("orders", AVRO, record("a"))
    assert await code_of(registry.get(7)) is ErrorCode.SCHEMA_UNKNOWN
    assert await code_of(registry.get(1, 9)) is ErrorCode.SCHEMA_UNKNOWN
    for call in (registry.latest, registry.versions):
        assert await code_of(call("absent")) is ErrorCode.SCHEMA_UNKNOWN
    assert await code_of(registry.check("absent", AVRO, record())) is ErrorCode.SCHEMA_UNKNOWN
    assert await code_of(registry.set_mode("absent", CompatibilityMode.FULL)) is ErrorCode.SCHEMA_UNKNOWN


async def test_a_deleted_version_is_gone(registry: SchemaRegistry) -> None:
    for fields in (["a"], ["a", "b"], ["a", "b", "c"]):
        await registry.register("orders", AVRO, record(*fields))
    assert await registry.delete_version("orders", 3)
    assert (await registry.latest("orders")).record.version == 2
    assert await code_of(registry.get(1, 3)) is ErrorCode.SCHEMA_UNKNOWN
    assert [one.version for _, one in await registry.versions("orders")] == [1, 2]
    # The same schema may come back, under a number nobody had.
    again = await registry.register("orders", AVRO, record("a", "b", "c"))
    assert (again.version, again.is_new_version) == (4, True)
    assert await registry.delete_version("orders", 1)
    assert (await registry.latest("orders")).record.version == 4


async def test_deleting_what_is_not_there_changes_nothing(registry: SchemaRegistry) -> None:
    await registry.register("orders", AVRO, record("a"))
    assert not await registry.delete_version("absent", 1)
    assert not await registry.delete_version("orders", 5)
    assert await registry.delete_version("orders", 1)
    assert not await registry.delete_version("orders", 1)


async def test_a_subject_without_versions_keeps_id_mode_and_count(registry: SchemaRegistry) -> None:
    await registry.register("orders", AVRO, record("a"))
    await registry.set_mode("orders", CompatibilityMode.FULL)
    await registry.delete_version("orders", 1)
    assert await registry.subjects() == []
    assert await registry.versions("orders") == []
    assert await code_of(registry.latest("orders")) is ErrorCode.SCHEMA_UNKNOWN
    # Nothing is left to be compatible with, so that even the type is free.
    renewed = await registry.register("orders", SchemaKind.STRING, b"")
    assert (renewed.schema_id, renewed.version) == (1, 2)
    assert (await registry.latest("orders")).mode is CompatibilityMode.FULL


async def test_subjects_are_listed_with_their_latest_version(registry: SchemaRegistry) -> None:
    names = ["b", "a/with/slashes", "_index", "ümlaut %41"]
    for name in names:
        await registry.register(name, AVRO, record("a"), tags=[name])
    await registry.register("b", AVRO, record("a", "b"), tags=["new"])
    await registry.set_mode("b", CompatibilityMode.FORWARD_TRANSITIVE)
    listed = await registry.subjects()
    assert [(one.subject, one.schema_id) for one in listed] == list(zip(names, range(1, 5), strict=True))
    assert (listed[0].latest.version, listed[0].latest.tags) == (2, ("new",))
    assert listed[0].mode is CompatibilityMode.FORWARD_TRANSITIVE


@pytest.mark.parametrize("other", ["a/versions", "a/", "/a", "a//b", "a%2Fversions", ".."])
async def test_names_with_slashes_do_not_meet(registry: SchemaRegistry, other: str) -> None:
    for name in ("a", other):
        await registry.register(name, AVRO, record("a"))
        await registry.register(name, AVRO, record("a", "b"))
    assert [one.subject for one in await registry.subjects()] == ["a", other]
    for name in ("a", other):
        assert [one.version for _, one in await registry.versions(name)] == [1, 2]
        assert await registry.delete_version(name, 1)
        assert (await registry.latest(name)).subject == name


async def test_registrations_at_once_take_one_number_each(registry: SchemaRegistry) -> None:
    definitions = [record(*(f"f{k}" for k in range(n))) for n in range(20)]
    done = await asyncio.gather(*(registry.register("orders", AVRO, one) for one in definitions))
    assert sorted(one.version for one in done) == list(range(1, 21))
    assert {one.schema_id for one in done} == {done[0].schema_id}
    stored = {
        one.record.version: one.definition
        for one in [await registry.get(done[0].schema_id, n) for n in range(1, 21)]
    }
    assert stored == {one.version: definition for one, definition in zip(done, definitions, strict=True)}


async def test_two_brokers_share_a_store(metadata: MetadataStore, clock) -> None:
    one, other = SchemaRegistry(metadata, clock), SchemaRegistry(metadata, clock)
    same = await asyncio.gather(*(side.register("s", AVRO, record("a")) for side in (one, other)))
    assert same[0].schema_id == same[1].schema_id
    assert sorted(result.is_new_version for result in same) == [False, True]
    different = await asyncio.gather(
        one.register("s", AVRO, record("a", "b")), other.register("s", AVRO, record("a", "c"))
    )
    assert sorted(result.version for result in different) == [2, 3]


async def test_an_endless_contest_is_given_up(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    await registry.register("orders", AVRO, record("a"))
    monkeypatch.setattr(registry_module, "ATTEMPTS_MAX", 3)
    append = subjects.SubjectStore.append

    async def overtaken(self, found, *rest):
        await self.set_mode(found, CompatibilityMode.FULL)
        return await append(self, found, *rest)

    monkeypatch.setattr(subjects.SubjectStore, "append", overtaken)
    with pytest.raises(Unavailable, match="3 attempts lost"):
        await registry.register("orders", AVRO, record("a", "b"))
    assert len(await registry.versions("orders")) == 1


async def test_a_version_must_obey_the_mode_that_holds_when_it_is_written(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the comparison and the write, the mode becomes stricter."""
    await registry.register("orders", AVRO, record("a"))
    await registry.set_mode("orders", CompatibilityMode.NONE)
    append = subjects.SubjectStore.append

    async def overtaken_once(self, found, *rest):
        if found.mode is CompatibilityMode.NONE:
            await self.set_mode(found, CompatibilityMode.BACKWARD)
        return await append(self, found, *rest)

    monkeypatch.setattr(subjects.SubjectStore, "append", overtaken_once)
    breaking = b'{"type": "record", "name": "Other", "fields": []}'
    assert await code_of(registry.register("orders", AVRO, breaking)) is ErrorCode.SCHEMA_INCOMPATIBLE
    assert len(await registry.versions("orders")) == 1


@pytest.mark.parametrize("subject", ["", "a\nb", "x" * 256, "ü" * 128])
async def test_names_are_checked(registry: SchemaRegistry, subject: str) -> None:
    assert await code_of(registry.register(subject, AVRO, record("a"))) is ErrorCode.ARGUMENT_INVALID


async def test_the_longest_name_fits(registry: SchemaRegistry) -> None:
    name = "ü" * 127
    await registry.register(name, AVRO, record("a"))
    assert (await registry.latest(name)).subject == name


@pytest.mark.parametrize(
    "details",
    [{"description": "x" * 4_097}, {"created_by": "x" * 256}, {"tags": ["x"] * 65}, {"tags": ["x" * 129]}],
)
async def test_texts_around_a_version_are_bounded(registry: SchemaRegistry, details) -> None:
    assert await code_of(registry.register("s", AVRO, record("a"), **details)) is ErrorCode.ARGUMENT_INVALID
    assert await registry.subjects() == []


async def test_the_largest_definition_is_kept_whole(registry: SchemaRegistry) -> None:
    definition = b'{"description": "' + b"x" * (1024 * 1024 - 19) + b'"}'
    await registry.register("large", SchemaKind.JSON_SCHEMA, definition)
    assert (await registry.latest("large")).definition == definition


async def test_subjects_and_versions_are_bounded(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "SUBJECTS_MAX", 2)
    monkeypatch.setattr(registry_module, "VERSIONS_MAX", 2)
    for name in ("a", "b"):
        await registry.register(name, AVRO, record("a"))
    with pytest.raises(Rejected, match="more than 2"):
        await registry.register("c", AVRO, record("a"))
    await registry.register("a", AVRO, record("a", "b"))
    with pytest.raises(Rejected, match="2 versions"):
        await registry.register("a", AVRO, record("a", "c"))
    await registry.delete_version("a", 1)
    assert (await registry.register("a", AVRO, record("a", "c"))).version == 3


async def test_too_much_parsing_at_once_is_refused(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "WAITING_MAX", 2)
    results = await asyncio.gather(
        *(registry.register(f"s{n}", AVRO, record(f"f{n}")) for n in range(5)), return_exceptions=True
    )
    refused = [one for one in results if isinstance(one, Unavailable)]
    assert [one.code for one in refused] == [ErrorCode.OVERLOADED] * 3
    assert len(await registry.subjects()) == 2


async def test_what_a_producer_means(registry: SchemaRegistry) -> None:
    for fields in (["a"], ["a", "b"], ["a", "b", "c"]):
        await registry.register("orders", AVRO, record(*fields))
    assert await registry.resolve("orders") == (1, 3)
    assert await registry.resolve("orders", pinned=2) == (1, 2)
    assert await registry.resolve("orders", at_least=2) == (1, 3)
    await registry.delete_version("orders", 2)
    assert await code_of(registry.resolve("orders", pinned=2)) is ErrorCode.SCHEMA_UNKNOWN
    assert await code_of(registry.resolve("orders", at_least=4)) is ErrorCode.SCHEMA_UNKNOWN
