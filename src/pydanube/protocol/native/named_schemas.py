"""Which schema each message of a publish names, and the payloads, for who checks the one against the other."""

import struct
from collections.abc import Sequence
from itertools import pairwise

from pydanube.protocol.messages import PublishScan
from pydanube.protocol.native.batch import SCHEMA_ID, SCHEMA_VERSION
from pydanube.protocol.native.checking import CheckedBatch
from pydanube.protocol.native.ipc_message import binary_column

VERSION_MASK = (1 << 32) - 1


class NamedPayloads:
    """The messages of one publish. A schema is named by id and version, both 0 where a message does not say."""

    __slots__ = ("count", "payloads", "schemas", "which")

    def __init__(
        self,
        count: int,
        schemas: Sequence[tuple[int, int]],
        which: Sequence[int] | None,
        payloads: Sequence[bytes],
    ) -> None:
        self.count = count
        self.schemas = schemas
        """Every schema that is named, once."""
        self.which = which
        """For each message the place of its schema in `schemas`; None if all name the first."""
        self.payloads = payloads
        """Empty if nobody asked for them."""


def named_by_row(scan: PublishScan, body: bytes) -> NamedPayloads:
    """Of a `StreamMessage` that was scanned."""
    schema = (scan.schema_id, scan.schema_version & VERSION_MASK)
    at = scan.payload_at
    return NamedPayloads(1, (schema,), None, (body[at : at + scan.payload_bytes],))


def named_by_batch(batch: CheckedBatch, body: bytes, *, with_payloads: bool) -> NamedPayloads:
    """Of a batch that was checked."""
    columns, head = batch.layout.columns, batch.head
    payloads = _payloads(batch, body) if with_payloads else ()
    if not columns & (SCHEMA_ID | SCHEMA_VERSION):
        return NamedPayloads(batch.count, ((head.schema_id, head.schema_version),), None, payloads)
    ids = _numbers(batch, "schema_id", columns & SCHEMA_ID, head.schema_id)
    versions = _numbers(batch, "schema_version", columns & SCHEMA_VERSION, head.schema_version)
    places: dict[tuple[int, int], int] = {}
    which = [places.setdefault(named, len(places)) for named in zip(ids, versions, strict=True)]
    return NamedPayloads(batch.count, list(places), which, payloads)


def _numbers(batch: CheckedBatch, name: str, own: int, shared: int) -> list[int]:
    if not own:
        return [shared] * batch.count
    return [value or 0 for value in batch.record_batch.column(name).to_pylist()]


def _payloads(batch: CheckedBatch, body: bytes) -> list[bytes]:
    if batch.record_batch is not None:
        payloads: list[bytes] = batch.record_batch.column(0).to_pylist()
        return payloads
    column = binary_column(body, batch.layout.arrow_at, batch.count)
    offsets = struct.unpack_from(f"<{batch.count + 1}i", body, column.offsets_at)
    data_at = column.data_at
    return [body[data_at + start : data_at + end] for start, end in pairwise(offsets)]
