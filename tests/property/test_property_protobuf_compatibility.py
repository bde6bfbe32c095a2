"""When we say that a reader can read what a writer writes, it does: nothing refused, lost or changed.

Pairs of schemas are one random schema and a random mutation of it, made as descriptors; data is random for the
writer's type. The reader must parse its bytes and its JSON, and agree on every field both have.
"""

from collections.abc import Callable

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import event, given, settings
from hypothesis import strategies as st

from pydanube.schemas.protobuf_schema import ProtobufSchema

Draw = Callable[..., object]
F = FieldDescriptorProto

INTEGERS = {
    F.TYPE_INT32: (-(2**31), 2**31 - 1),
    F.TYPE_SINT32: (-(2**31), 2**31 - 1),
    F.TYPE_SFIXED32: (-(2**31), 2**31 - 1),
    F.TYPE_UINT32: (0, 2**32 - 1),
    F.TYPE_FIXED32: (0, 2**32 - 1),
    F.TYPE_INT64: (-(2**63), 2**63 - 1),
    F.TYPE_SINT64: (-(2**63), 2**63 - 1),
    F.TYPE_SFIXED64: (-(2**63), 2**63 - 1),
    F.TYPE_UINT64: (0, 2**64 - 1),
    F.TYPE_FIXED64: (0, 2**64 - 1),
}
SCALARS = [*INTEGERS, F.TYPE_BOOL, F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_DOUBLE, F.TYPE_FLOAT]
NAMES = [f"field_{letter}" for letter in "abcdef"]
MESSAGES = ["Root", "Inner"]


@st.composite
def files(draw: Draw) -> FileDescriptorProto:
    file = FileDescriptorProto(
        name="a.proto", package="shop", syntax=draw(st.sampled_from(["proto2", "proto3"]))
    )
    for name in MESSAGES:
        message = file.message_type.add(name=name)
        if draw(st.booleans()):
            message.oneof_decl.add(name="choice")
        for number in draw(st.sets(st.integers(1, 6), min_size=1, max_size=4)):
            fill(draw, file, message, message.field.add(name=NAMES[number - 1], number=number))
    enum = file.enum_type.add(name="State")
    for number in sorted(draw(st.sets(st.integers(1, 4), max_size=3)) | {0}):
        enum.value.add(name=f"S{number}", number=number)
    return settled(file)


def fill(
    draw: Draw, file: FileDescriptorProto, message: DescriptorProto, field: FieldDescriptorProto
) -> None:
    """Give the field a type, a cardinality and perhaps a oneof."""
    field.ClearField("type_name")
    field.ClearField("oneof_index")
    field.type = draw(st.sampled_from([*SCALARS, F.TYPE_ENUM, F.TYPE_MESSAGE]))
    if field.type == F.TYPE_ENUM:
        field.type_name = ".shop.State"
    elif field.type == F.TYPE_MESSAGE:
        field.type_name = ".shop.Inner"
    labels = [F.LABEL_OPTIONAL, F.LABEL_REPEATED]
    # A required message of a type that requires itself could never be written.
    if file.syntax == "proto2" and field.type != F.TYPE_MESSAGE:
        labels.append(F.LABEL_REQUIRED)
    field.label = draw(st.sampled_from(labels))
    if message.oneof_decl and field.label == F.LABEL_OPTIONAL and draw(st.booleans()):
        field.oneof_index = 0


def settled(file: FileDescriptorProto) -> FileDescriptorProto:
    """Without the oneofs that lost their fields: an empty one is not legal."""
    for message in file.message_type:
        if not any(field.HasField("oneof_index") for field in message.field):
            del message.oneof_decl[:]
    return file


@st.composite
def mutations(draw: Draw, original: FileDescriptorProto) -> FileDescriptorProto:
    file = FileDescriptorProto()
    file.CopyFrom(original)
    for _ in range(draw(st.integers(1, 3))):
        message = draw(st.sampled_from(list(file.message_type)))
        mutation = draw(
            st.sampled_from([retype, widen, relabel, remove, add, rename, exclude, change_enum, move])
        )
        mutation(draw, file, message)
    return settled(file)


def _some_field(draw: Draw, message: DescriptorProto) -> FieldDescriptorProto | None:
    return draw(st.sampled_from(list(message.field))) if message.field else None


def retype(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    field = _some_field(draw, message)
    if field is not None:
        fill(draw, file, message, field)


def widen(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    for field in message.field:
        if field.type in INTEGERS:
            field.type = draw(st.sampled_from(list(INTEGERS)))


def relabel(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    field = _some_field(draw, message)
    if field is None or field.HasField("oneof_index") or field.type == F.TYPE_MESSAGE:
        return
    if file.syntax == "proto2":
        field.label = draw(st.sampled_from([F.LABEL_OPTIONAL, F.LABEL_REPEATED, F.LABEL_REQUIRED]))


def remove(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    field = _some_field(draw, message)
    if field is not None:
        message.field.remove(field)


def add(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    free = {1, 2, 3, 4, 5, 6} - {field.number for field in message.field}
    names = set(NAMES) - {field.name for field in message.field}
    if free and names:
        fill(
            draw,
            file,
            message,
            message.field.add(
                number=draw(st.sampled_from(sorted(free))), name=draw(st.sampled_from(sorted(names)))
            ),
        )


def rename(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    field = _some_field(draw, message)
    if field is not None:
        other = draw(st.sampled_from(NAMES))
        for taken in message.field:
            if taken.name == other:
                taken.name = field.name
        field.name = other


def exclude(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    """Into the oneof, or out of it."""
    field = _some_field(draw, message)
    if field is None or field.label != F.LABEL_OPTIONAL:
        return
    if field.HasField("oneof_index"):
        field.ClearField("oneof_index")
    else:
        if not message.oneof_decl:
            message.oneof_decl.add(name="choice")
        field.oneof_index = 0


def change_enum(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    enum = EnumDescriptorProto(name="State")
    for number in sorted(draw(st.sets(st.integers(1, 4), max_size=3)) | {0}):
        enum.value.add(name=draw(st.sampled_from([f"S{number}", f"T{number}"])), number=number)
    file.enum_type[0].CopyFrom(enum)


def move(draw: Draw, file: FileDescriptorProto, message: DescriptorProto) -> None:
    """proto2 to proto3 or back."""
    other = "proto3" if file.syntax == "proto2" else "proto2"
    if not any(field.label == F.LABEL_REQUIRED for inner in file.message_type for field in inner.field):
        file.syntax = other


def schema_of(file: FileDescriptorProto) -> ProtobufSchema | None:
    """The schema, or None if the file is not legal. Without protoc, which would take most of the time."""
    pool = DescriptorPool()
    try:
        pool.AddSerializedFile(file.SerializeToString())
    except TypeError:
        return None
    return ProtobufSchema("", pool.FindMessageTypeByName("shop.Root"))


@st.composite
def data(draw: Draw, descriptor: Descriptor, depth: int = 0) -> Message:
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if field.is_repeated:
            if depth < 3:
                for value in [draw(values(field, depth)) for _ in range(draw(st.integers(0, 2)))]:
                    getattr(message, field.name).append(value)
        elif field.is_required or (draw(st.booleans()) and (field.message_type is None or depth < 3)):
            value = draw(values(field, depth))
            if field.message_type is not None:
                getattr(message, field.name).CopyFrom(value)
            else:
                setattr(message, field.name, value)
    return message


def values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[object]:
    if field.message_type is not None:
        return data(field.message_type, depth + 1)
    if field.enum_type is not None:
        declared = st.sampled_from([value.number for value in field.enum_type.values])
        return declared if field.enum_type.is_closed else declared | st.integers(0, 9)
    if field.type in INTEGERS:
        return st.integers(*INTEGERS[field.type])
    return {
        F.TYPE_BOOL: st.booleans(),
        F.TYPE_STRING: st.text(max_size=5),
        F.TYPE_BYTES: st.binary(max_size=5),
        F.TYPE_DOUBLE: st.floats(allow_nan=False),
        F.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
    }[field.type]


def assert_agrees(read: Message, written: Message) -> None:
    """Every field both have holds the same value."""
    for number, theirs in written.DESCRIPTOR.fields_by_number.items():
        ours = read.DESCRIPTOR.fields_by_number.get(number)
        if ours is None:
            continue
        value, original = getattr(read, ours.name), getattr(written, theirs.name)
        if theirs.message_type is None:
            assert (list(value) if theirs.is_repeated else value) == (
                list(original) if theirs.is_repeated else original
            )
        elif theirs.is_repeated:
            assert len(value) == len(original)
            for one, other in zip(value, original, strict=True):
                assert_agrees(one, other)
        else:
            assert read.HasField(ours.name) == written.HasField(theirs.name)
            if written.HasField(theirs.name):
                assert_agrees(value, original)


def has_values_of_its_own(writer: ProtobufSchema, reader: ProtobufSchema) -> bool:
    theirs, ours = (
        {value.number for value in schema.message.file.enum_types_by_name["State"].values}
        for schema in (writer, reader)
    )
    return not theirs <= ours


@settings(max_examples=400)
@given(st.data())
def test_what_is_called_readable_is_read_the_same(draws: st.DataObject) -> None:
    original = draws.draw(files())
    changed = draws.draw(mutations(original))
    sides = [original, changed] if draws.draw(st.booleans()) else [changed, original]
    writer, reader = (schema_of(side) for side in sides)
    if writer is None or reader is None:
        event("not a legal schema")
        return
    problems = reader.problems_reading(writer)
    event("incompatible" if problems else "same" if original == changed else "compatible")
    if problems:
        return
    written = draws.draw(data(writer.message))
    payload = written.SerializeToString()
    assert reader.check_payload(payload) is None
    read = GetMessageClass(reader.message).FromString(payload)
    assert_agrees(read, written)
    # The one exception: the name of an enum value that only the writer has. A field the reader lacks is skipped.
    text = json_format.MessageToJson(written, use_integers_for_enums=has_values_of_its_own(writer, reader))
    assert_agrees(
        json_format.Parse(text, GetMessageClass(reader.message)(), ignore_unknown_fields=True), written
    )


@settings(max_examples=200)
@given(st.data())
def test_a_schema_reads_its_own_data_and_follows_itself(draws: st.DataObject) -> None:
    schema = schema_of(draws.draw(files()))
    if schema is None:
        event("not a legal schema")
        return
    assert schema.problems_reading(schema) == []
    assert schema.problems_succeeding(schema) == []
    assert schema.check_payload(draws.draw(data(schema.message)).SerializeToString()) is None
