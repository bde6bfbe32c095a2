"""What is published: messages of 1 KiB, made many at once."""

import random
import string
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

MESSAGE_BYTES = 1024
PER_MEBIBYTE = (1 << 20) // MESSAGE_BYTES
TABLE_ROWS = 16_384
NUMBER_DIGITS = 12
FILLER = "".join(random.Random(7).choices(string.ascii_letters, k=MESSAGE_BYTES - NUMBER_DIGITS))


def random_messages(count: int) -> Iterator[pa.Table]:
    """Bytes that no codec makes smaller: all of them are moved by everyone."""
    dice = np.random.default_rng(5)
    for first in range(0, count, TABLE_ROWS):
        rows = min(TABLE_ROWS, count - first)
        ends = np.arange(0, MESSAGE_BYTES * (rows + 1), MESSAGE_BYTES, dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(dice.bytes(MESSAGE_BYTES * rows))]
        yield pa.table({"payload": pa.BinaryArray.from_buffers(pa.binary(), rows, buffers)})


def numbered_messages(count: int) -> Iterator[pa.Table]:
    """A number, then the same letters in each: what Spark makes by `numbered_payload`, byte for byte."""
    for first in range(0, count, TABLE_ROWS):
        numbers = pa.array(np.arange(first, min(first + TABLE_ROWS, count))).cast(pa.string())
        padded = pc.utf8_lpad(numbers, NUMBER_DIGITS, "0")
        yield pa.table({"payload": pc.binary_join_element_wise(padded, FILLER, "").cast(pa.binary())})


def numbered_payload(number: str) -> Column:
    """The payload of a row, from the column that numbers it."""
    padded = F.lpad(F.col(number).cast("string"), NUMBER_DIGITS, "0")
    return F.encode(F.concat(padded, F.lit(FILLER)), "utf-8")
