"""A segment's descriptor as the storage services tell of it."""

from typing import Any, Final

from pydanube.history.segment import SegmentDescriptor
from pydanube.protocol import storage_admin_pb2 as pb

_FIELDS: Final = SegmentDescriptor.__struct_fields__


def listed_segment(descriptor: SegmentDescriptor, place: str) -> pb.Segment:
    """With the place where an operator finds the file."""
    return pb.Segment(place=place, **{name: getattr(descriptor, name) for name in _FIELDS})


def descriptor_of(listed: pb.Segment) -> SegmentDescriptor:
    """What a service told, as it was stored."""
    fields: dict[str, Any] = {name: getattr(listed, name) for name in _FIELDS}
    if not listed.HasField("removed_messages"):
        fields["removed_messages"] = None
    return SegmentDescriptor(**fields)
