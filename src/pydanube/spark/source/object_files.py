"""Objects of a store as files that Arrow reads."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Final
from urllib.parse import urlsplit

import msgspec
import pyarrow as pa

from pydanube.client.loop_thread import LoopThread
from pydanube.kernel.errors import Rejected, Unavailable
from pydanube.spark.source.segment_files import OutOfReach
from pydanube.stores.settings import Backend, DurableSettings, open_store, problems
from pydanube.stores.store import DurableStore, Missing

_BACKENDS: Final = {
    "s3": Backend.S3,
    "gs": Backend.GCS,
    "gcs": Backend.GCS,
    "az": Backend.AZBLOB,
    "azblob": Backend.AZBLOB,
}


@contextmanager
def open_object(place: str, size: int, store: Mapping[str, str]) -> Iterator[pa.NativeFile]:
    """An object by its address; what it raises is what `open_segment` does."""
    address = urlsplit(place)
    settings = _settings(address.scheme, address.netloc, store)
    with closing(_Objects(open_store(settings))) as objects:
        try:
            with pa.PythonFile(_ObjectFile(objects, address.path.lstrip("/"), size), "r") as file:
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
