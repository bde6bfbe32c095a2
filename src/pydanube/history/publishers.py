"""Whom the messages of a row group came from, for batches that are merged of messages of several producers."""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pydanube.protocol.native_pb2 import Publisher

PUBLISHERS_BYTES_MAX: Final = 16 * 1024
"""Of one batch: half of what a head may have."""
PUBLISHER_BYTES_MAX: Final = 1024
"""Of one publisher that messages are merged of; no honest one is longer."""

_FEW_BYTES: Final = 512
"""As long as all together are no longer, a batch names them all and need not look who is in it."""
_FIELD_BYTES: Final = 3
"""What a head has for each publisher beside it: a tag and a length."""
_UNSIGNED_64: Final = (1 << 64) - 1

Numbers = npt.NDArray[np.int64]


class Named(NamedTuple):
    """Publishers of the messages before `end`, and which of them each came from; None if all are of the only one."""

    publishers: list[Publisher]
    numbers: npt.NDArray[np.uint16] | None
    end: int


class GroupPublishers:
    """The publishers of a row group in the order they appear, and the number of each message's."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._numbers = _number(batch)
        firsts = np.zeros(1, np.int64)
        if self._numbers.size:
            firsts = np.empty(int(self._numbers.max()) + 1, np.int64)
            firsts[self._numbers[::-1]] = np.arange(batch.num_rows - 1, -1, -1)
        self._publishers = _publishers(batch, firsts)
        self._sizes = np.array([publisher.ByteSize() + _FIELD_BYTES for publisher in self._publishers])
        self.are_short: Final = bool(self._sizes.max() <= PUBLISHER_BYTES_MAX)
        """Whether several of any of them fit in a head."""
        self._all_bytes = int(self._sizes.sum())

    @property
    def head_bytes_max(self) -> int:
        """What a head needs for publishers, at most."""
        return min(self._all_bytes, PUBLISHERS_BYTES_MAX)

    def named(self, start: int, end: int) -> Named:
        """Those of the messages from `start` on, up to `end` or as many as fit in a head."""
        if len(self._publishers) == 1:
            return Named(self._publishers, None, end)
        own = self._numbers[start:end]
        if self._all_bytes <= _FEW_BYTES:
            return Named(self._publishers, own.astype(np.uint16), end)
        numbers, firsts, places = np.unique(own, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        too_many = np.flatnonzero(np.cumsum(self._sizes[numbers[order]]) > PUBLISHERS_BYTES_MAX)
        if too_many.size:
            return self.named(start, start + int(firsts[order[too_many[0]]]))
        found = [self._publishers[number] for number in numbers]
        return Named(found, places.astype(np.uint16) if len(found) > 1 else None, end)


def _number(batch: pa.RecordBatch) -> Numbers:
    """Numbers that are the same for messages of the same publisher, from 0 on without a gap; none if there is one."""
    numbers = np.zeros(0, np.int64)
    for name in ("producer_id", "producer_name", "broker_addr", "subscription_name"):
        column = batch.column(name)
        if _is_uniform(column):
            continue
        if name == "producer_id":
            column = column.dictionary_encode()
        # A null is a value of its own here.
        codes = column.indices.fill_null(-1).to_numpy().astype(np.int64) + 1
        if numbers.size:
            codes += numbers * (len(column.dictionary) + 1)
        combined = pa.array(codes).dictionary_encode()
        numbers = combined.indices.to_numpy().astype(np.int64)
    return numbers


def _is_uniform(column: pa.Array) -> bool:
    if column.null_count:
        return bool(column.null_count == len(column))
    values = (column.indices if isinstance(column, pa.DictionaryArray) else column).to_numpy()
    return bool(values[0] == values[-1] and values.min() == values.max())


def _publishers(batch: pa.RecordBatch, firsts: Numbers) -> list[Publisher]:
    """What the messages at these places say of theirs."""
    chosen = batch.select(["producer_id", "producer_name", "broker_addr", "subscription_name"]).take(
        pa.array(firsts)
    )
    return [
        Publisher(
            producer_id=producer_id & _UNSIGNED_64,
            producer_name=name,
            broker_addr=address or "",
            subscription_name=subscription or "",
        )
        for producer_id, name, address, subscription in zip(
            *[column.to_pylist() for column in chosen.columns], strict=True
        )
    ]
