"""Compatibility modes as the registry applies them, and the envelope readers receive."""

import json
from base64 import b64encode

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.envelope import encode_envelope
from pydanube.schemas.format import CompatibilityMode, SchemaKind
from pydanube.schemas.protobuf_compiler import compile_proto
from pydanube.schemas.registry import SchemaRegistry

Mode = CompatibilityMode
AVRO = SchemaKind.AVRO


def record(**fields: bool) -> bytes:
    """An Avro record of ints; True gives the field a default."""
    parts = [{"name": n, "type": "int"} | ({"default": 0} if d else {}) for n, d in fields.items()]
    return json.dumps({"type": "record", "name": "Order", "fields": parts}).encode()


async def refusal(registry: SchemaRegistry, subject: str, kind: SchemaKind, definition: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        await registry.register(subject, kind, definition)
    assert caught.value.code is ErrorCode.SCHEMA_INCOMPATIBLE
    return caught.value.text


async def test_a_new_subject_is_backward_compatible(registry: SchemaRegistry) -> None:
    await registry.register("s", AVRO, record(a=False))
    text = await refusal(registry, "s", AVRO, record(a=False, b=False))
    assert "'s'" in text
    assert "backward" in text
    assert "b" in text
    assert (await registry.latest("s")).record.version == 1


@pytest.mark.parametrize(
    ("mode", "adds_required", "removes_required"),
    [
        (Mode.NONE, True, True),
        (Mode.BACKWARD, False, True),
        (Mode.FORWARD, True, False),
        (Mode.FULL, False, False),
    ],
)
async def test_each_mode_protects_its_readers(
    registry: SchemaRegistry, mode: Mode, adds_required: bool, removes_required: bool
) -> None:
    await registry.register("s", AVRO, record(a=False))
    await registry.set_mode("s", mode)
    assert (await registry.check("s", AVRO, record(a=False, b=False)) == []) == adds_required
    assert (await registry.check("s", AVRO, record()) == []) == removes_required
    # Asking changes nothing, and another mode may be asked about.
    assert await registry.check("s", AVRO, record(), mode=Mode.NONE) == []
    assert await registry.check("s", AVRO, record(), mode=Mode.FULL) != []
    assert len(await registry.versions("s")) == 1
    assert (await registry.latest("s")).mode is mode


async def test_transitive_modes_look_at_every_version_that_is_left(registry: SchemaRegistry) -> None:
    await registry.register("s", AVRO, record())
    await registry.register("s", AVRO, record(a=True))
    breaking = record(a=False)
    assert await registry.check("s", AVRO, breaking, mode=Mode.BACKWARD) == []
    [problem] = await registry.check("s", AVRO, breaking, mode=Mode.BACKWARD_TRANSITIVE)
    assert "version 1" in problem.text
    await registry.delete_version("s", 1)
    assert await registry.check("s", AVRO, breaking, mode=Mode.BACKWARD_TRANSITIVE) == []


async def test_another_type_is_incompatible_unless_nothing_is_promised(registry: SchemaRegistry) -> None:
    await registry.register("s", AVRO, record())
    assert "string" in await refusal(registry, "s", SchemaKind.STRING, b"")
    await registry.set_mode("s", Mode.NONE)
    assert (await registry.register("s", SchemaKind.STRING, b"")).version == 2


async def test_protobuf_must_reserve_what_it_removes(registry: SchemaRegistry) -> None:
    proto = 'syntax = "proto3"; message Order { int64 id = 1; %s }'
    await registry.register("p", SchemaKind.PROTOBUF, (proto % "string note = 2;").encode())
    text = await refusal(registry, "p", SchemaKind.PROTOBUF, (proto % "").encode())
    assert 'reserved 2; reserved "note";' in text
    assert "version 1" in text
    await registry.register("p", SchemaKind.PROTOBUF, (proto % 'reserved 2; reserved "note";').encode())


async def test_unusable_definitions_are_refused_before_anything_is_written(registry: SchemaRegistry) -> None:
    for kind in (AVRO, SchemaKind.JSON_SCHEMA, SchemaKind.PROTOBUF):
        with pytest.raises(Rejected) as caught:
            await registry.register("s", kind, b"{nonsense")
        assert caught.value.code is ErrorCode.SCHEMA_INVALID
    assert await registry.subjects() == []
    assert (await registry.register("s", AVRO, record())).schema_id == 1


async def test_envelopes_of_registered_schemas(registry: SchemaRegistry) -> None:
    avro = await registry.register("a", AVRO, b' {"type": "string"}')
    assert json.loads((await registry.get(avro.schema_id)).envelope) == {
        "Avro": {"raw_schema": ' {"type": "string"}', "fingerprint": avro.fingerprint}
    }
    document = await registry.register("j", SchemaKind.JSON_SCHEMA, b'{"type": "string"}')
    assert json.loads((await registry.get(document.schema_id)).envelope) == {
        "JsonSchema": {"raw_schema": '{"type": "string"}', "fingerprint": document.fingerprint}
    }
    text = 'syntax = "proto3"; package shop; message Order { int64 id = 1; }'
    proto = await registry.register("p", SchemaKind.PROTOBUF, text.encode())
    assert json.loads((await registry.get(proto.schema_id)).envelope) == {
        "Protobuf": {"raw_proto": text, "message_name": "shop.Order", "fingerprint": proto.fingerprint}
    }
    descriptors = compile_proto(text.encode(), {})
    binary = await registry.register("b", SchemaKind.PROTOBUF, descriptors)
    envelope = json.loads((await registry.get(binary.schema_id)).envelope)
    assert envelope["Protobuf"]["raw_proto"] == b64encode(descriptors).decode()
    # What a reader takes out of the envelope is the same schema again.
    again = await registry.register("b", SchemaKind.PROTOBUF, envelope["Protobuf"]["raw_proto"].encode())
    assert not again.is_new_version


@pytest.mark.parametrize(
    ("kind", "envelope"),
    [(SchemaKind.BYTES, b'"Bytes"'), (SchemaKind.STRING, b'"String"'), (SchemaKind.NUMBER, b'"Number"')],
)
def test_plain_types_have_a_plain_envelope(kind: SchemaKind, envelope: bytes) -> None:
    assert encode_envelope(kind, b"whatever \xff", fingerprint=kind.value, message_name="") == envelope
