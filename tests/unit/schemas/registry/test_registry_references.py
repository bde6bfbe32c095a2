"""Schemas that refer to versions of other subjects."""

import asyncio
import json

import pytest

from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, Rejected
from pydanube.metadata import MetadataStore
from pydanube.schemas import references as references_module
from pydanube.schemas import subjects
from pydanube.schemas.format import CompatibilityMode, SchemaKind
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.subjects import Reference

AVRO, JSON, PROTO = SchemaKind.AVRO, SchemaKind.JSON_SCHEMA, SchemaKind.PROTOBUF


def to(name: str, subject: str, version: int = 1) -> Reference:
    return Reference(name=name, subject=subject, version=version)


def avro(name: str, **fields: object) -> bytes:
    parts = [{"name": each, "type": kind} for each, kind in fields.items()]
    return json.dumps({"type": "record", "name": name, "fields": parts}).encode()


async def code_of(call) -> ErrorCode:
    with pytest.raises(DanubeError) as caught:
        await call
    return caught.value.code


@pytest.fixture
async def money(registry: SchemaRegistry) -> SchemaRegistry:
    await registry.register("money", AVRO, avro("shop.Money", cents="long"))
    return registry


ORDER = avro("shop.Order", price="Money")
MONEY = to("shop.Money", "money")


async def test_a_schema_is_checked_with_what_it_refers_to(money: SchemaRegistry) -> None:
    assert await code_of(money.register("orders", AVRO, ORDER)) is ErrorCode.SCHEMA_INVALID
    made = await money.register("orders", AVRO, ORDER, references=[MONEY])
    schema = await money.loaded.load(made.schema_id, made.version)
    assert schema is not None
    assert schema.check_payload(b"\x02") is None
    assert schema.check_payload(b"") is not None
    found = await money.get(made.schema_id)
    assert found.record.references == (MONEY,)
    assert json.loads(found.envelope)["Avro"]["references"] == [
        {"name": "shop.Money", "subject": "money", "version": 1}
    ]


async def test_json_schema_and_protobuf_refer_by_their_own_words(registry: SchemaRegistry) -> None:
    await registry.register("id", JSON, b'{"type": "integer"}')
    order = b'{"type": "object", "properties": {"id": {"$ref": "id.json"}}}'
    made = await registry.register("orders", JSON, order, references=[to("id.json", "id")])
    schema = await registry.loaded.load(made.schema_id, 1)
    assert schema is not None
    assert schema.check_payload(b'{"id": 1}') is None
    assert schema.check_payload(b'{"id": "1"}') is not None

    await registry.register("money.proto", PROTO, b'syntax = "proto3"; message Money { int64 cents = 1; }')
    text = b'syntax = "proto3"; import "money.proto"; message Order { Money price = 1; }'
    made = await registry.register("bills", PROTO, text, references=[to("money.proto", "money.proto")])
    schema = await registry.loaded.load(made.schema_id, 1)
    assert schema is not None
    assert schema.check_payload(b"\x0a\x02\x08\x01") is None


async def test_what_references_refer_to_belongs_to_the_schema(money: SchemaRegistry) -> None:
    await money.register("line", AVRO, avro("shop.Line", price="Money"), references=[MONEY])
    made = await money.register(
        "orders", AVRO, avro("shop.Order", line="Line"), references=[to("shop.Line", "line")]
    )
    followed = await money.references(made.schema_id, 1)
    assert [each.reference.name for each in followed] == ["shop.Money", "shop.Line"]
    assert followed[0].definition == avro("shop.Money", cents="long")


@pytest.mark.parametrize("kind", [AVRO, PROTO])
async def test_references_are_content(registry: SchemaRegistry, kind: SchemaKind) -> None:
    """The same text over another version is another schema, and the same over the same is not."""
    if kind is AVRO:
        name, text = "Money", avro("Order", price="Money")
        texts = [
            b'{"type": "enum", "name": "Money", "symbols": ["A"], "default": "A"}',
            b'{"type": "enum", "name": "Money", "symbols": ["A", "B"], "default": "A"}',
        ]
    else:
        name, text = "m.proto", b'syntax = "proto3"; import "m.proto"; message Order { Money price = 1; }'
        texts = [
            b'syntax = "proto3"; message Money { int64 cents = 1; }',
            b'syntax = "proto3"; message Money { int64 cents = 1; string currency = 2; }',
        ]
    for each in texts:
        await registry.register("money", kind, each)
    first = await registry.register("orders", kind, text, references=[to(name, "money", 1)])
    again = await registry.register("orders", kind, text, references=[to(name, "money", 1)])
    second = await registry.register("orders", kind, text, references=[to(name, "money", 2)])
    assert (again.version, again.is_new_version) == (1, False)
    assert (second.version, second.is_new_version) == (2, True)
    assert first.fingerprint != second.fingerprint


async def test_compatibility_looks_into_references(money: SchemaRegistry) -> None:
    await money.register("orders", AVRO, ORDER, references=[MONEY])
    await money.set_mode("money", CompatibilityMode.NONE)
    await money.register("money", AVRO, avro("shop.Money", cents="string"))
    changed = [to("shop.Money", "money", 2)]
    problems = await money.check("orders", AVRO, ORDER, references=changed)
    assert [problem.path for problem in problems] == ["price.cents"]
    call = money.register("orders", AVRO, ORDER, references=changed)
    assert await code_of(call) is ErrorCode.SCHEMA_INCOMPATIBLE


async def test_a_version_others_refer_to_stays(money: SchemaRegistry) -> None:
    await money.register("orders", AVRO, ORDER, references=[MONEY])
    await money.register("bills", AVRO, avro("shop.Bill", sum="Money"), references=[MONEY])
    with pytest.raises(DanubeError, match="version 1 of 'bills', version 1 of 'orders'") as caught:
        await money.delete_version("money", 1)
    assert caught.value.code is ErrorCode.SCHEMA_IN_USE
    await money.delete_version("orders", 1)
    assert await code_of(money.delete_version("money", 1)) is ErrorCode.SCHEMA_IN_USE
    await money.delete_version("bills", 1)
    assert await money.delete_version("money", 1)


async def test_a_subject_may_refer_to_its_own_earlier_versions(money: SchemaRegistry) -> None:
    await money.set_mode("money", CompatibilityMode.NONE)
    made = await money.register("money", AVRO, avro("shop.Price", net="Money"), references=[MONEY])
    assert made.version == 2
    assert await code_of(money.delete_version("money", 1)) is ErrorCode.SCHEMA_IN_USE
    assert await money.delete_version("money", 2)
    assert await money.delete_version("money", 1)


@pytest.mark.parametrize(
    ("references", "code", "text"),
    [
        ([to("shop.Money", "money", 2)], ErrorCode.SCHEMA_UNKNOWN, "version 2 of subject 'money'"),
        ([to("shop.Money", "nothing")], ErrorCode.SCHEMA_UNKNOWN, "does not exist"),
        ([to("", "money")], ErrorCode.SCHEMA_INVALID, "reference name"),
        ([to("a\nb", "money")], ErrorCode.SCHEMA_INVALID, "reference name"),
        ([to("x" * 256, "money")], ErrorCode.SCHEMA_INVALID, "reference name"),
        ([MONEY, MONEY], ErrorCode.SCHEMA_INVALID, "twice"),
        ([to("shop.Money", "")], ErrorCode.ARGUMENT_INVALID, "invalid subject"),
        ([to("shop.Money", "text")], ErrorCode.SCHEMA_INVALID, "its own type only"),
        ([to(f"n{n}", "money") for n in range(65)], ErrorCode.SCHEMA_INVALID, "at most 64"),
    ],
)
async def test_bad_references_are_refused(
    money: SchemaRegistry, references: list[Reference], code: ErrorCode, text: str
) -> None:
    await money.register("text", SchemaKind.STRING, b"")
    with pytest.raises(Rejected, match=text) as caught:
        await money.register("orders", AVRO, ORDER, references=references)
    assert caught.value.code is code
    assert await money.schema_id("orders") is None


async def test_types_without_definition_refer_to_nothing(money: SchemaRegistry) -> None:
    call = money.register("s", SchemaKind.STRING, b"", references=[MONEY])
    assert await code_of(call) is ErrorCode.SCHEMA_INVALID


async def test_one_name_has_one_meaning(money: SchemaRegistry) -> None:
    await money.register("money", AVRO, b'{"type": "record", "name": "shop.Money", "fields": []}')
    await money.register("line", AVRO, avro("shop.Line", price="Money"), references=[MONEY])
    order = avro("shop.Order", line="Line", total="Money")
    with pytest.raises(Rejected, match="means both version 2 of subject 'money' and version 1"):
        await money.register(
            "orders", AVRO, order, references=[to("shop.Money", "money", 2), to("shop.Line", "line")]
        )


async def test_references_of_references_are_bounded(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references_module, "DEPTH_MAX", 3)
    await registry.register("t0", AVRO, avro("T0"))
    for n in range(1, 4):
        await registry.register(
            f"t{n}", AVRO, avro(f"T{n}", inner=f"T{n - 1}"), references=[to(f"T{n - 1}", f"t{n - 1}")]
        )
    with pytest.raises(Rejected, match="more than 3 schemas deep"):
        await registry.register("t4", AVRO, avro("T4", inner="T3"), references=[to("T3", "t3")])
    monkeypatch.setattr(references_module, "DEPTH_MAX", 16)
    monkeypatch.setattr(references_module, "REFERENCES_MAX", 3)
    with pytest.raises(Rejected, match="more than 3 references"):
        await registry.register("t4", AVRO, avro("T4", inner="T3"), references=[to("T3", "t3")])
    monkeypatch.setattr(references_module, "REFERENCES_MAX", 64)
    monkeypatch.setattr(references_module, "DEFINITION_BYTES_MAX", 100)
    with pytest.raises(Rejected, match="more than 100 bytes"):
        await registry.register("t4", AVRO, avro("T4", inner="T3"), references=[to("T3", "t3")])


async def test_a_circle_in_the_store_is_told_as_damage(
    money: SchemaRegistry, metadata: MetadataStore
) -> None:
    await money.register("orders", AVRO, ORDER, references=[MONEY])
    entry = await metadata.get("/schemas/money/versions/1")
    assert entry is not None
    record = json.loads(entry.value) | {
        "references": [{"name": "shop.Order", "subject": "orders", "version": 1}]
    }
    await metadata.put(entry.key, json.dumps(record).encode())
    followed = await money.references(2, 1)
    assert sorted(each.reference.name for each in followed) == ["shop.Money", "shop.Order"]
    await metadata.delete("/schemas/money/definitions/1")
    with pytest.raises(Corrupt, match="cannot be parsed now"):
        await money.loaded.load(2, 1)


async def test_a_reference_made_during_a_deletion_is_not_left_dangling(
    money: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = subjects.SubjectStore.remove

    async def overtaken(self, found, *rest):
        await money.register("orders", AVRO, ORDER, references=[MONEY])
        return await remove(self, found, *rest)

    monkeypatch.setattr(subjects.SubjectStore, "remove", overtaken)
    assert await code_of(money.delete_version("money", 1)) is ErrorCode.SCHEMA_IN_USE
    assert await money.loaded.load(2, 1) is not None


async def test_a_deletion_during_a_registration_makes_it_fail(
    money: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = subjects.SubjectStore.create

    async def overtaken(self, *given):
        await money.delete_version("money", 1)
        return await create(self, *given)

    monkeypatch.setattr(subjects.SubjectStore, "create", overtaken)
    call = money.register("orders", AVRO, ORDER, references=[MONEY])
    assert await code_of(call) is ErrorCode.SCHEMA_UNKNOWN
    assert await money.schema_id("orders") is None


async def test_many_may_refer_to_one_version_at_once(money: SchemaRegistry) -> None:
    made = await asyncio.gather(
        *(money.register(f"orders-{n}", AVRO, ORDER, references=[MONEY]) for n in range(8))
    )
    assert {each.version for each in made} == {1}
    with pytest.raises(DanubeError, match="is referred to by"):
        await money.delete_version("money", 1)
