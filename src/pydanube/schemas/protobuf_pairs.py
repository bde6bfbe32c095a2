"""Which types of two Protobuf messages meet when one is read as the other."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor

MARKS: Final = {"singular": "", "repeated": "[]", "map": "{}"}
"""What a path shows after the name of a field of each shape."""


@dataclass(frozen=True, slots=True)
class MessagePair:
    """Two message types that meet at the same place; `path` is that place."""

    path: str
    reader: Descriptor
    written: Descriptor
    packages: "Packages"

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


@dataclass(frozen=True, slots=True)
class EnumPair:
    """Two enum types that meet at the same field."""

    path: str
    reader: EnumDescriptor
    written: EnumDescriptor


@dataclass(frozen=True, slots=True)
class Packages:
    """When a package was renamed, that is said once, not of every type in it."""

    reader: str
    written: str

    def same(self, reader: Descriptor | EnumDescriptor, written: Descriptor | EnumDescriptor) -> bool:
        if reader.full_name == written.full_name:
            return True
        return (
            reader.file.package == self.reader
            and written.file.package == self.written
            and _within(reader, self.reader) == _within(written, self.written)
        )


def _within(described: Descriptor | EnumDescriptor, package: str) -> str:
    return described.full_name.removeprefix(package).removeprefix(".")


def meeting_types(reader: Descriptor, written: Descriptor) -> Iterator[MessagePair | EnumPair]:
    """Every two types that meet at the same field, each once, the messages themselves first."""
    packages = Packages(reader.file.package, written.file.package)
    seen = {(reader.full_name, written.full_name)}
    waiting = deque([MessagePair("", reader, written, packages)])
    while waiting:
        pair = waiting.popleft()
        yield pair
        for theirs in pair.written.fields:
            ours = pair.reader.fields_by_number.get(theirs.number)
            if ours is None or shape_of(ours) != shape_of(theirs):
                continue
            path = pair.at(theirs.name) + MARKS[shape_of(theirs)]
            if ours.message_type is not None and theirs.message_type is not None:
                key = (ours.message_type.full_name, theirs.message_type.full_name)
                if key not in seen and same_type(ours, theirs, packages):
                    seen.add(key)
                    waiting.append(MessagePair(path, ours.message_type, theirs.message_type, packages))
            elif ours.enum_type is not None and theirs.enum_type is not None:
                key = (ours.enum_type.full_name, theirs.enum_type.full_name)
                if key not in seen and same_type(ours, theirs, packages):
                    seen.add(key)
                    yield EnumPair(path, ours.enum_type, theirs.enum_type)


def shape_of(field: FieldDescriptor) -> str:
    if not field.is_repeated:
        return "singular"
    return "map" if _is_map(field) else "repeated"


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def same_type(ours: FieldDescriptor, theirs: FieldDescriptor, packages: Packages) -> bool:
    """Whether two fields are of the same named type; a map's entry type has the name of the field."""
    if ours.message_type is not None and theirs.message_type is not None:
        return (_is_map(ours) and _is_map(theirs)) or packages.same(ours.message_type, theirs.message_type)
    if ours.enum_type is not None and theirs.enum_type is not None:
        return packages.same(ours.enum_type, theirs.enum_type)
    return False
