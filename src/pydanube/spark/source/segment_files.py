"""The files of segments where they lie: on a disk, or in an object store."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa


class OutOfReach(Exception):
    """The file is not there, or not to be had from here: a broker may have the messages all the same."""


class Placed(Protocol):
    """A segment, however much else is known of it."""

    @property
    def place(self) -> str: ...
    @property
    def size(self) -> int: ...


def is_object(place: str) -> bool:
    """Whether a place is an address in an object store rather than a path."""
    return "://" in place


@contextmanager
def open_segment(segment: Placed, store: Mapping[str, str]) -> Iterator[pa.NativeFile]:
    """The bytes of a segment; `store` says how to get into an object store.

    Raises:
        OutOfReach: it is not there, or the store does not answer or let us in.
        Rejected: `store` is wrong in itself.
    """
    if is_object(segment.place):
        # What it takes to talk to a store is not loaded for files on a disk.
        from pydanube.spark.source.object_files import open_object  # noqa: PLC0415

        with open_object(segment.place, segment.size, store) as file:
            yield file
        return
    try:
        file = pa.OSFile(segment.place)
    except OSError as error:
        raise OutOfReach(f"{segment.place}: {error.strerror or error}") from error
    with file:
        yield file
