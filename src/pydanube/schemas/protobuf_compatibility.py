"""Which changes of a Protobuf message keep its data readable, in the binary format and as JSON.

A reader is compared with a writer, whichever of them is older: every value the writer can write must reach
the reader as the same value. Fields only one side has are fine, as Protobuf means them to be; what a newer
version may take away is `protobuf_succession.py`. One exception is made, as everywhere: a new value of an open
enum is accepted although an older reader understands it by number only, not by its name in JSON.

Compared with `buf breaking` in its category WIRE_JSON, which knows no direction: a number may widen where
only the reader got wider (buf: never); int32 and uint32, sfixed32 and fixed32 and so on are different types,
since negative numbers do not survive (buf: the same); a field may move into or out of a oneof as long as no
two fields that could be set together would then exclude each other (buf: never).
"""

from collections.abc import Iterator
from typing import Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.limits import PROBLEMS_MAX
from pydanube.schemas.protobuf_pairs import EnumPair, MessagePair, meeting_types, same_type, shape_of

TYPE_NAMES: Final = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}

# Writer's type to wider reader's types: same bytes, same JSON, same value.
WIDER: Final = {
    FieldDescriptor.TYPE_INT32: (FieldDescriptor.TYPE_INT64,),
    FieldDescriptor.TYPE_UINT32: (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_INT64),
    FieldDescriptor.TYPE_SINT32: (FieldDescriptor.TYPE_SINT64,),
}


def problems_reading(reader: Descriptor, written: Descriptor) -> list[Incompatibility]:
    """Why data of `written` would be lost, changed or refused when read as `reader`; empty when it is safe."""
    problems = list(_renamed_root(reader, written))
    for meeting in meeting_types(reader, written):
        if isinstance(meeting, EnumPair):
            problems += _enum_problems(meeting)
        else:
            problems += _message_problems(meeting)
    return problems[:PROBLEMS_MAX]


def _renamed_root(reader: Descriptor, written: Descriptor) -> Iterator[Incompatibility]:
    if reader.full_name != written.full_name:
        yield Incompatibility(
            "",
            "message_renamed",
            f"the reader expects message {reader.full_name}, the data is {written.full_name}: keep package and name, "
            f"and if {written.full_name} is no longer the first message, say // danube:message={written.full_name}",
        )


def _message_problems(pair: MessagePair) -> Iterator[Incompatibility]:
    for theirs in pair.written.fields:
        ours = pair.reader.fields_by_number.get(theirs.number)
        if ours is not None:
            yield from _field_problems(pair, ours, theirs)
        elif theirs.name in pair.reader.fields_by_name:
            moved = pair.reader.fields_by_name[theirs.name]
            yield Incompatibility(
                pair.at(theirs.name),
                "field_renumbered",
                f"field '{theirs.name}' is number {moved.number} for the reader and {theirs.number} in the data: "
                "keep the number",
            )
    for ours in pair.reader.fields:
        if ours.is_required and ours.number not in pair.written.fields_by_number:
            yield Incompatibility(
                pair.at(ours.name),
                "required_field_missing",
                f"the reader requires field '{ours.name}' ({ours.number}), which the data does not have: make it optional",
            )
    yield from _oneof_problems(pair)


def _field_problems(
    pair: MessagePair, ours: FieldDescriptor, theirs: FieldDescriptor
) -> Iterator[Incompatibility]:
    path = pair.at(theirs.name)
    field = f"field '{theirs.name}' ({theirs.number})"
    if shape_of(ours) != shape_of(theirs):
        yield Incompatibility(
            path,
            "cardinality_changed",
            f"{field} is {shape_of(ours)} for the reader and {shape_of(theirs)} in the data: add a new field instead",
        )
        return
    if not _readable_type(pair, ours, theirs):
        yield Incompatibility(
            path,
            "type_changed",
            f"{field} is {_type_name(ours)} for the reader and {_type_name(theirs)} in the data: "
            "keep the type, or add a new field",
        )
        return
    # A JSON reader takes a field's JSON name or the name it is declared by.
    if theirs.json_name not in (ours.json_name, ours.name):
        yield Incompatibility(
            path,
            "field_renamed",
            f"{field} is '{ours.name}' for the reader, so that JSON with '{theirs.json_name}' is not understood: "
            f'keep the name, or add [json_name = "{theirs.json_name}"]',
        )
    if ours.is_required and not theirs.is_required:
        yield Incompatibility(
            path,
            "required_added",
            f"{field} is required by the reader and may be absent from the data: make it optional",
        )
    # By spelling: a default that is not a number is not equal to itself.
    if not ours.is_repeated and repr(ours.default_value) != repr(theirs.default_value):
        yield Incompatibility(
            path,
            "default_changed",
            f"{field} reads as {ours.default_value!r} when absent, and the writer means {theirs.default_value!r}: "
            "keep the default",
        )


def _readable_type(pair: MessagePair, ours: FieldDescriptor, theirs: FieldDescriptor) -> bool:
    if ours.type != theirs.type:
        return ours.type in WIDER.get(theirs.type, ())
    named = ours.message_type is not None or ours.enum_type is not None
    return not named or same_type(ours, theirs, pair.packages)


def _type_name(field: FieldDescriptor) -> str:
    named = field.message_type or field.enum_type
    return TYPE_NAMES[field.type] if named is None else f"{TYPE_NAMES[field.type]} {named.full_name}"


def _oneof_problems(pair: MessagePair) -> Iterator[Incompatibility]:
    """Fields the writer can set together must not exclude each other for the reader."""
    for oneof in pair.reader.oneofs:
        fields = [pair.written.fields_by_number.get(field.number) for field in oneof.fields]
        shared = [field for field in fields if field is not None]
        sources = {
            field.containing_oneof.full_name if field.containing_oneof else field.full_name
            for field in shared
        }
        if len(sources) > 1:
            names = ", ".join(f"'{field.name}'" for field in shared)
            yield Incompatibility(
                pair.at(oneof.name),
                "oneof_moved",
                f"the reader keeps one of {names} (oneof {oneof.name}), the data may have several: "
                "leave existing fields out of it",
            )


def _enum_problems(pair: EnumPair) -> Iterator[Incompatibility]:
    name = pair.written.full_name
    if pair.reader.is_closed and not pair.written.is_closed:
        yield Incompatibility(
            pair.path,
            "enum_closed",
            f"enum {name} is closed for the reader and open in the data, so that other numbers would be lost: keep it open",
        )
    our_names, their_names = _names_by_number(pair.reader), _names_by_number(pair.written)
    for value in pair.written.values:
        ours = our_names.get(value.number)
        if ours is not None:
            # JSON is written with the first name of a number.
            if value.name == their_names[value.number][0] and value.name not in ours:
                yield Incompatibility(
                    pair.path,
                    "enum_value_renamed",
                    f"{value.number} of enum {name} is {ours[0]} for the reader and {value.name} in the data: "
                    "keep the name, a new one may stand beside it (allow_alias)",
                )
        elif value.name in pair.reader.values_by_name:
            yield Incompatibility(
                pair.path,
                "enum_value_renumbered",
                f"{value.name} of enum {name} is {pair.reader.values_by_name[value.name].number} for the reader "
                f"and {value.number} in the data: keep the number",
            )
        elif pair.reader.is_closed:
            yield Incompatibility(
                pair.path,
                "enum_value_unknown",
                f"the reader's closed enum {name} lacks {value.name} ({value.number}), which the data may have: "
                "keep it, or upgrade readers first",
            )


def _names_by_number(enum: EnumDescriptor) -> dict[int, list[str]]:
    names: dict[int, list[str]] = {}
    for value in enum.values:
        names.setdefault(value.number, []).append(value.name)
    return names
