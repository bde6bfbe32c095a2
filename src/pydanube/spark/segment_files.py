"""The files of segments where they lie: on a disk, or in an object store."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from pydanube.client.history import StoredSegment
from pydanube.client.loop_thread import LoopThread
from pydanube.kernel.errors import Rejected, Unavailable
from pydanube.stores.settings import Backend, DurableSettings, open_store, problems
from pydanube.stores.store import DurableStore, Missing

_BACKENDS: Final = {
    "s3": Backend.S3,
    "gs": Backend.GCS,
    "gcs": Backend.GCS,
    "az": Backend.AZBLOB,
    "azblob": Backend.AZBLOB,
}


class OutOfReach(Exception):
    """The file is not there, or not to be had from here: a broker may have the messages all the same."""


def is_object(place: str) -> bool:
    """Whether a place is an address in an object store rather than a path."""
    return "://" in place


@contextmanager
def open_segment(segment: StoredSegment, store: Mapping[str, str]) -> Iterator[pa.NativeFile]:
    """The bytes of a segment; `store` says how to get into an object store.

    Raises:
        OutOfReach: it is not there, or the store does not answer or let us in.
        Rejected: `store` is wrong in itself.
    """
    if not is_object(segment.place):
        try:
            file = pa.OSFile(segment.place)
        except OSError as error:
            raise OutOfReach(f"{segment.place}: {error.strerror or error}") from error
        with file:
            yield file
        return
    address = urlsplit(segment.place)
    settings = _settings(address.scheme, address.netloc, store)
    with closing(_Objects(open_store(settings))) as objects:
        try:
            with pa.PythonFile(_ObjectFile(objects, address.path.lstrip("/"), segment.size), "r") as file:
                yield file
        except (Unavailable, Missing) as error:
            raise OutOfReach(error.text) from error


def _settings(scheme: str, container: str, store: Mapping[str, str]) -> DurableSettings:
    backend = _BACKENDS.get(scheme)
    if backend is None:
        raise OutOfReach(f"objects of {scheme}:// cannot be read from here")
    given = {"backend": backend.value, "root": container, **store}
    try:
        settings = msgspec.convert(given, DurableSettings, strict=False)
    except msgspec.ValidationError as error:
        raise Rejected(f"options store.*: {error}") from None
    for key, problem in problems(settings, "object_store"):
        raise Rejected(f"option store.{key} {problem}")
    return settings


class _Objects:
    """A store for who has no event loop."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self._loop = LoopThread()

    def read(self, key: str, position: int, size: int) -> bytes:
        return bytes(self._loop.run(self._store.read(key, position, size)))

    def close(self) -> None:
        self._loop.run(self._store.close())
        self._loop.stop()


class _ObjectFile:
    """An object as the file that Arrow wants."""

    def __init__(self, objects: _Objects, key: str, size: int) -> None:
        self._objects = objects
        self._key = key
        self._size = size
        self._position = 0
        self.closed = False

    def read(self, size: int | None = None) -> bytes:
        rest = self._size - self._position
        size = rest if size is None or size < 0 else min(size, rest)
        data = self._objects.read(self._key, self._position, size) if size else b""
        self._position += len(data)
        return data

    def seek(self, position: int, whence: int = 0) -> int:
        self._position = position + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        self.closed = True
