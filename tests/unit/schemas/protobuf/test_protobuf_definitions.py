"""What may be registered as a Protobuf schema, and which message of it payloads are."""

from base64 import b64encode, encodebytes

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.format import SchemaKind, parse_schema
from pydanube.schemas.protobuf_compiler import compile_proto
from pydanube.schemas.protobuf_schema import parse_protobuf

ORDER = "message Order { int64 id = 1; }"


def refusal(definition: bytes, references: dict[str, bytes] | None = None) -> str:
    with pytest.raises(Rejected) as caught:
        parse_protobuf(definition, references or {})
    assert caught.value.code is ErrorCode.SCHEMA_INVALID
    return caught.value.text


def test_the_first_message_is_the_schema(proto) -> None:
    schema = parse_schema(SchemaKind.PROTOBUF, proto("enum E { Z = 0; } message First {} message Second {}"))
    assert schema.message_name == "shop.First"
    assert schema.kind is SchemaKind.PROTOBUF


@pytest.mark.parametrize("name", ["shop.Second", "Second", "shop.First.Inner"])
def test_a_comment_chooses_another_message(proto, name: str) -> None:
    text = proto(f"// danube:message={name}\nmessage First {{ message Inner {{}} }} message Second {{}}")
    assert parse_protobuf(text).message_name.endswith(name)


def test_a_comment_that_chooses_nothing_is_refused(proto) -> None:
    text = refusal(proto(f"// danube:message=shop.Absent\n{ORDER}"))
    assert "'shop.Absent'" in text
    assert "shop.Order" in text


def test_text_is_kept_and_is_the_fingerprint(proto) -> None:
    one, same, other = proto(ORDER), proto(ORDER), proto(ORDER + " ")
    assert parse_protobuf(one).text == one.decode()
    assert parse_protobuf(one).fingerprint == parse_protobuf(same).fingerprint
    assert parse_protobuf(one).fingerprint != parse_protobuf(other).fingerprint
    assert parse_protobuf(one).fingerprint.startswith("sha256:")


def test_a_descriptor_set_as_bytes_or_base64_is_one_definition(proto) -> None:
    descriptors = compile_proto(proto(ORDER), {})
    schema = parse_protobuf(descriptors)
    assert schema.message_name == "shop.Order"
    assert schema.text == b64encode(descriptors).decode()
    for spelled in (b64encode(descriptors), encodebytes(descriptors)):
        assert parse_protobuf(spelled).fingerprint == schema.fingerprint
    assert schema.problems_reading(parse_protobuf(proto(ORDER))) == []


def test_files_of_a_descriptor_set_come_in_any_order(proto) -> None:
    descriptors = FileDescriptorSet.FromString(
        compile_proto(
            proto('import "a.proto"; message Order { A a = 1; }'),
            {"a.proto": proto('import "b.proto"; message A { B b = 1; }'), "b.proto": proto("message B {}")},
        )
    )
    a, b, root = sorted(descriptors.file, key=lambda file: file.name)
    assert (
        parse_protobuf(FileDescriptorSet(file=[a, b, root]).SerializeToString()).message_name == "shop.Order"
    )


def test_a_descriptor_set_without_its_imports_is_refused(proto) -> None:
    definition = proto('import "a.proto"; message Order { A a = 1; }')
    descriptors = FileDescriptorSet.FromString(compile_proto(definition, {"a.proto": proto("message A {}")}))
    assert "a.proto" in refusal(FileDescriptorSet(file=descriptors.file[1:]).SerializeToString())


def test_references_and_well_known_types_can_be_imported(proto) -> None:
    definition = proto(
        'import "common/money.proto"; import "google/protobuf/timestamp.proto"; '
        "message Order { Money price = 1; google.protobuf.Timestamp at = 2; }"
    )
    references = {"common/money.proto": proto("message Money { int64 cents = 1; }")}
    assert parse_protobuf(definition, references).check_payload(b"\x0a\x02\x08\x05") is None
    assert "common/money.proto" in refusal(definition)


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (b"", "declares no message"),
        (b"message", "does not compile"),
        (b'syntax = "proto3"; message Order { int64 id = 0; }', "schema.proto:1:47"),
        (b'syntax = "proto3"; enum E { Z = 0; }', "declares no message"),
        (b'syntax = "proto3"; // \xff\n message A {}', "not UTF-8"),
        (rb'syntax = "proto3"; message A { int32 a = 1 [json_name = "\xff"]; }', "not UTF-8"),
        (b"\x00\x01\x02", "do not parse as descriptors"),
        (b64encode(b"nothing of the kind"), "do not parse as descriptors"),
        (FileDescriptorSet().SerializeToString() + b"\x12\x00", "holds no file"),
    ],
)
def test_what_cannot_be_used_is_refused_with_the_reason(definition: bytes, said: str) -> None:
    assert said in refusal(definition)


def test_schemas_of_the_same_names_do_not_meet(proto) -> None:
    one = parse_protobuf(proto("message Order { int64 id = 1; }"))
    other = parse_protobuf(proto("message Order { string id = 1; }"))
    assert one.check_payload(b"\x08\x05") is None
    assert other.check_payload(b"\x0a\x01x") is None
    assert other.check_payload(b"\x08\x05") is not None
