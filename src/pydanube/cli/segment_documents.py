"""Segments as the commands show them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pydanube.cli.tables import show_rows, size_text, time_text

if TYPE_CHECKING:
    from pydanube.protocol.storage_admin_pb2 import Segment

_COLUMNS: Final = ("first offset", "last offset", "messages", "size", "sealed (UTC)", "checksum", "place")


def segment_document(segment: "Segment") -> dict[str, object]:
    """Every field, for programs."""
    fields: dict[str, object] = {each.name: getattr(segment, each.name) for each in segment.DESCRIPTOR.fields}
    return fields | {"messages": _messages(segment)}


def show_segments(title: str, segments: "Sequence[Segment]", output: str) -> None:
    rows = [
        (
            f"{each.start_offset:,}",
            f"{each.end_offset:,}",
            f"{_messages(each):,}",
            size_text(each.size),
            time_text(each.created_at),
            each.checksum,
            each.place,
        )
        for each in segments
    ]
    show_rows(title, _COLUMNS, rows, [segment_document(each) for each in segments], output)


def _messages(segment: "Segment") -> int:
    return segment.end_offset - segment.start_offset + 1
