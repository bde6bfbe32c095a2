"""Payloads decoded as an executor does it, without Spark."""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from pydanube.schemas.format import kind_of
from pydanube.spark.decoding.batches import BatchDecoder
from pydanube.spark.decoding.schema_sources import Definition, LoadedSchemas

SCHEMA_ID = 7

DecodeAll = Callable[[str, Sequence[str], Sequence[tuple[int, bytes]]], list[dict[str, Any] | str]]


@pytest.fixture(scope="session")
def decode_all() -> DecodeAll:
    """Rows, or reasons, of (version, payload) pairs in a table of the last of the versions."""

    def decode(kind: str, versions: Sequence[str], messages: Sequence[tuple[int, bytes]]) -> list[Any]:
        known = {
            number: Definition(kind_of(kind), text.encode()) for number, text in enumerate(versions, start=1)
        }
        decoder = BatchDecoder(LoadedSchemas(known[len(versions)], SCHEMA_ID, "s", known))
        decoded = decoder.decode(
            pa.array([SCHEMA_ID] * len(messages), pa.int64()),
            pa.array([version for version, _ in messages], pa.int64()),
            pa.array([payload for _, payload in messages], pa.binary()),
        )
        decoded.validate(full=True)
        return [each["row"] if each["error"] is None else each["error"] for each in decoded.to_pylist()]

    return decode
