"""Attributes of many messages, which come as keys and values, as a column of maps."""

import numpy as np
import pyarrow as pa

from pydanube.history.field_scan import IntArray
from pydanube.protocol.native.columns import ATTRIBUTE_MAP


def map_column(messages: IntArray, keys: pa.Array, values: pa.Array, count: int) -> pa.Array:
    """A map for each of `count` messages, null if it has none; of the values of one key the last counts.

    Element i of the arrays is one attribute and the number of the message it belongs to, which never goes back.
    """
    kept = _last_of_each(messages, keys)
    if len(kept) < len(messages):
        keys, values, messages = keys.take(pa.array(kept)), values.take(pa.array(kept)), messages[kept]
    edges = np.searchsorted(messages, np.arange(count + 1)).astype(np.int32)
    return pa.MapArray.from_arrays(
        pa.array(edges), keys, values, type=ATTRIBUTE_MAP, mask=pa.array(edges[1:] == edges[:-1])
    )


def _last_of_each(messages: IntArray, keys: pa.Array) -> IntArray:
    """Numbers of the attributes that no later one of the same message and key replaces."""
    encoded = keys.dictionary_encode()
    pairs = messages * len(encoded.dictionary) + encoded.indices.to_numpy()
    _, from_the_end = np.unique(pairs[::-1], return_index=True)
    return np.sort(len(pairs) - 1 - from_the_end)
