"""What a newer version of a Protobuf message may take away from an older one.

Removed fields and enum values must leave their numbers and names reserved. Otherwise a later version could
give them another meaning and read old data wrongly, which no comparison with the latest version alone would
notice. This is the same in every direction of compatibility.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.descriptor import Descriptor, EnumDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto

from pydanube.schemas.format import Incompatibility
from pydanube.schemas.limits import PROBLEMS_MAX
from pydanube.schemas.protobuf_pairs import EnumPair, MessagePair, meeting_types


def problems_succeeding(newer: Descriptor, older: Descriptor) -> list[Incompatibility]:
    """What `newer` frees for misuse: removed fields and enum values not reserved, reservations dropped."""
    problems: list[Incompatibility] = []
    for pair in meeting_types(newer, older):
        problems += _enum_removals(pair) if isinstance(pair, EnumPair) else _field_removals(pair)
    return problems[:PROBLEMS_MAX]


def _field_removals(pair: MessagePair) -> Iterator[Incompatibility]:
    newer, older = _reserved_in_message(pair.reader), _reserved_in_message(pair.written)
    for field in pair.written.fields:
        if field.number in pair.reader.fields_by_number or newer.holds(field.number, field.name):
            continue
        yield Incompatibility(
            pair.at(field.name),
            "field_removed",
            f"field '{field.name}' ({field.number}) of {pair.written.full_name} was removed without reserving it: "
            f'add `reserved {field.number}; reserved "{field.name}";`',
        )
    yield from _dropped(pair.path, pair.written.full_name, newer, older)


def _enum_removals(pair: EnumPair) -> Iterator[Incompatibility]:
    newer, older = _reserved_in_enum(pair.reader), _reserved_in_enum(pair.written)
    for value in pair.written.values:
        kept = value.name in pair.reader.values_by_name or value.number in pair.reader.values_by_number
        if kept or newer.holds(value.number, value.name):
            continue
        yield Incompatibility(
            pair.path,
            "enum_value_removed",
            f"{value.name} ({value.number}) of enum {pair.written.full_name} was removed without reserving it: "
            f'add `reserved {value.number}; reserved "{value.name}";`',
        )
    yield from _dropped(pair.path, pair.written.full_name, newer, older)


@dataclass(frozen=True, slots=True)
class _Reserved:
    """Numbers, as ranges that exclude their end, and names that may not be used again."""

    ranges: list[tuple[int, int]]
    names: set[str]

    def holds(self, number: int, name: str) -> bool:
        return name in self.names and self.covers(number, number + 1)

    def covers(self, start: int, end: int) -> bool:
        """Whether every number from `start` up to `end`, itself excluded, is reserved."""
        for low, high in sorted(self.ranges):
            if low <= start < high:
                start = high
        return start >= end


def _reserved_in_message(message: Descriptor) -> _Reserved:
    proto = DescriptorProto()
    message.CopyToProto(proto)
    return _Reserved([(kept.start, kept.end) for kept in proto.reserved_range], set(proto.reserved_name))


def _reserved_in_enum(enum: EnumDescriptor) -> _Reserved:
    proto = EnumDescriptorProto()
    enum.CopyToProto(proto)
    # An enum's ranges include their end, a message's do not.
    return _Reserved([(kept.start, kept.end + 1) for kept in proto.reserved_range], set(proto.reserved_name))


def _dropped(path: str, type_name: str, newer: _Reserved, older: _Reserved) -> Iterator[Incompatibility]:
    dropped = [
        f"{start}" if end == start + 1 else f"{start} to {end - 1}"
        for start, end in older.ranges
        if not newer.covers(start, end)
    ]
    dropped += [f'"{name}"' for name in sorted(older.names - newer.names)]
    if dropped:
        yield Incompatibility(
            path,
            "reservation_dropped",
            f"{type_name} no longer reserves {', '.join(dropped[:PROBLEMS_MAX])}: data with an older meaning may "
            "exist, reserve them again",
        )
