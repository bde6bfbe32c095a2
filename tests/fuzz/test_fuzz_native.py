"""Arbitrary and mutated frames and batches: only `Rejected`, within the limits, never another exception or a crash.

    pytest tests/fuzz/test_fuzz_native.py                     about six seconds
    FUZZ_SECONDS=600 pytest tests/fuzz/test_fuzz_native.py    as long as asked

A failure prints the seed that replays it: FUZZ_SEED=… runs that one case of each test.
"""

import os
import random
import resource
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native import frames
from pydanube.protocol.native.arrow import (
    delivered_batch,
    encode_payloads,
    routing_keys,
    rows,
)
from pydanube.protocol.native.batch import BATCH_BYTES_MAX, encode_batch, is_batch, message_count, read_layout
from pydanube.protocol.native.bodies import (
    Item,
    decode_credit,
    decode_items,
    decode_published,
    decode_ranges,
    encode_item_header,
    encode_ranges,
)
from pydanube.protocol.native.checking import CheckedBatch, check_batch
from pydanube.protocol.native.frames import HEADER_BYTES, PREFACE, FrameReader, encode_frame, publish_header
from pydanube.protocol.native.timing import timing
from pydanube.protocol.native_pb2 import BatchHead

SECONDS = float(os.environ.get("FUZZ_SECONDS", "6"))
SEED = os.environ.get("FUZZ_SEED")
TOPIC = "/default/t"
BODY_MAX = 2000
ARROW_BYTES_MAX = 4 * BATCH_BYTES_MAX
"""What Arrow may have set aside at any moment: a batch decompressed, LZ4's own buffers, and what consumers get of it."""
RESIDENT_KIB_MAX = 300 * 1024
"""How much the process may grow over the run."""
pytestmark = pytest.mark.timeout(2 * SECONDS + 60)


def many(case: Callable[[random.Random], bool]) -> int:
    """Run a case with one seed after another for half the time given; how many got somewhere."""
    if SEED:
        case(random.Random(int(SEED)))
        return 1
    seed = random.SystemRandom().randrange(2**40)
    started = time.monotonic()
    useful = 0
    while time.monotonic() - started < SECONDS / 2:
        try:
            useful += case(random.Random(seed))
        except Exception as error:
            raise AssertionError(f"replay with FUZZ_SEED={seed}") from error
        seed += 1
    return useful


def mutated(dice: random.Random, data: bytes, changes: int) -> bytes:
    changed = bytearray(data)
    for _ in range(changes):
        at = dice.randrange(len(changed) + 1)
        choice = dice.randrange(8)
        if choice == 0:
            changed[at:at] = dice.randbytes(dice.randrange(1, 10))
        elif choice == 1:
            del changed[at : at + dice.randrange(1, 10)]
        elif choice == 2:
            # The numbers that overflow, underflow or reach far, where numbers are.
            at -= at % 4
            number = dice.choice([0, 1, 7, 8, 255, 2**16, 2**24, 2**31 - 1, 2**31, 2**32 - 1, 2**32 - 8])
            changed[at : at + 4] = struct.pack("<I", number)
        elif at < len(changed):
            changed[at] = dice.choice([changed[at] ^ 1 << dice.randrange(8), dice.randrange(256), 0, 255])
    return bytes(changed)


def some_head(dice: random.Random) -> BatchHead:
    head = BatchHead(producer_id=dice.randrange(2**64), producer_name="p" * dice.randrange(20))
    for name in ("publish_time", "schema_id", "schema_version", "deliver_at", "ttl"):
        if dice.random() < 0.3:
            setattr(head, name, dice.randrange(2**32))
    if dice.random() < 0.3:
        head.attributes["name"] = "value"
    return head


def some_batch(dice: random.Random) -> bytes:
    count = dice.choice([1, 1, 2, 5, 40])
    payloads = [bytes(dice.choice([0, 1, 20, 300])) for _ in range(count)]
    columns: dict[str, list[Any]] = {
        "publish_times": [dice.randrange(2**40) for _ in payloads],
        "routing_keys": [dice.choice([None, "", "kä"]) for _ in payloads],
        "attributes": [dice.choice([None, {}, {"a": "b"}, {"c": "", "d": "ü"}]) for _ in payloads],
        "schema_ids": [dice.choice([None, 1]) for _ in payloads],
        "schema_versions": [dice.choice([None, 1]) for _ in payloads],
        "compaction_keys": [dice.choice([None, b"", b"k"]) for _ in payloads],
    }
    chosen = {name: values for name, values in columns.items() if dice.random() < 0.4}
    return encode_payloads(payloads, some_head(dice), codec=dice.choice([0, 0, 1, 2]), **chosen)


def recompressed(dice: random.Random, body: bytes) -> bytes:
    """The same batch with its Arrow message mutated before it is compressed and counted."""
    layout = read_layout(body)
    message = body[layout.arrow_at :]
    if layout.codec:
        name = "lz4" if layout.codec == 1 else "zstd"
        message = pa.decompress(message, layout.raw_bytes, codec=name, asbytes=True)
    # Most of the metadata is at the beginning, and little is learnt from payloads.
    cut = dice.choice([len(message), min(len(message), 400)])
    message = mutated(dice, message[:cut], dice.choice([0, 1, 1, 2, 5])) + message[cut:]
    codec = dice.choice([0, 1, 2])
    raw_bytes = len(message) + (dice.choice([-1, 1, 8, 1_000_000]) if dice.random() < 0.1 else 0)
    if codec:
        message = pa.compress(message, codec="lz4" if codec == 1 else "zstd", asbytes=True)
    return encode_batch(
        layout.head,
        message,
        codec=codec,
        count=layout.count,
        raw_bytes=max(raw_bytes, 0),
        columns=layout.columns,
    )


def read_batch(body: bytes, check: Callable[[bytes], CheckedBatch] = check_batch) -> bool:
    """Everything a broker and a consumer do with a body; whether it was accepted."""
    try:
        checked = check(body)
    except Rejected as refusal:
        code = refusal.code
    else:
        read_accepted(body, checked)
        return True
    assert code is ErrorCode.BATCH_INVALID
    # Consumers trust no broker either.
    for read in (
        lambda: rows(body, TOPIC),
        lambda: routing_keys(body),
        lambda: timing(body),
        lambda: delivered_batch(Item(0, 0, 0, message_count(body), 1, body), TOPIC),
    ):
        with suppress(Rejected):
            read()
    return False


def read_accepted(body: bytes, checked: CheckedBatch) -> None:
    """What was accepted must be readable by all, wholly, and hold what was counted."""
    count = checked.count
    assert is_batch(body)
    assert message_count(body) == count
    messages = [StreamMessage.FromString(row) for row in rows(body, TOPIC)]
    delivered = delivered_batch(Item(5, 5, 0, count, 1, body), TOPIC)
    delivered.validate(full=True)
    payloads = delivered.column("payload").to_pylist()
    assert len(messages) == len(payloads) == len(routing_keys(body)) == count
    assert [message.payload for message in messages] == payloads
    assert [message.routing_key for message in messages] == routing_keys(body)
    assert checked.payload_bytes == sum(map(len, payloads))
    assert checked.payload_bytes_max == max(map(len, payloads))
    assert checked.is_timed == any(timing(body))


def mutate_a_batch(dice: random.Random) -> bool:
    body = some_batch(dice)
    if dice.random() < 0.7:
        body = recompressed(dice, body)
    else:
        body = mutated(dice, body, dice.choice([0, 1, 2, 10]))
    if not is_batch(body):
        return False
    accepted = read_batch(body)
    assert pa.total_allocated_bytes() < ARROW_BYTES_MAX
    return accepted


def some_stream(dice: random.Random) -> bytes:
    stream = PREFACE
    for _ in range(dice.randrange(8)):
        kind = dice.randrange(1, 25)
        channel = dice.randrange(3)
        body = dice.randbytes(dice.choice([0, 12, 16, 40]))
        if kind == frames.PUBLISH:
            body = dice.choice([body + b"x", some_batch(dice)[:BODY_MAX]])
            stream += publish_header(channel, 1, dice.randrange(2**64), len(body)) + body
            continue
        if kind == frames.DELIVER:
            item = some_batch(dice)[: BODY_MAX - 32]
            body = encode_item_header(1, 2, 0, message_count(item), 1, len(item)) + item
        elif kind == frames.ACK:
            body = encode_ranges([(at, at + 1) for at in range(dice.randrange(4))])
        stream += encode_frame(kind, channel, dice.randrange(2**32), body)
    return stream


def mutate_a_stream(dice: random.Random) -> bool:
    stream = mutated(dice, some_stream(dice), dice.choice([0, 0, 1, 3]))
    reader = FrameReader(BODY_MAX, preface=PREFACE, buffer=memoryview(bytearray(dice.choice([1, 300, 4096]))))
    code: ErrorCode | None = None
    whole = 0
    at = 0
    while at < len(stream):
        size = dice.choice([1, 7, 100, 5000])
        try:
            if dice.random() < 0.5:
                got = reader.receive(stream[at : at + size])
            else:
                room = reader.room()
                size = min(size, len(room), len(stream) - at)
                room[:size] = stream[at : at + size]
                got = reader.received(size)
        except Rejected as refusal:
            code = refusal.code
            break
        at += size
        assert reader.held_bytes < BODY_MAX + HEADER_BYTES
        for frame in got:
            whole += 1
            assert 1 <= frame.kind <= frames.CLOSED
            assert len(frame.body) <= BODY_MAX
            read_frame(frame)
    assert code in (None, ErrorCode.PROTOCOL_VIOLATION)
    return whole > 0


def read_frame(frame: frames.Frame) -> None:
    readers: dict[int, Callable[[bytes], object]] = {
        frames.PUBLISHED: decode_published,
        frames.CREDIT: decode_credit,
        frames.ACK: decode_ranges,
    }
    with suppress(Rejected):
        if frame.kind == frames.DELIVER:
            for item in decode_items(frame.body):
                delivered_batch(item, TOPIC)
        elif frame.kind == frames.PUBLISH:
            check_batch(frame.body)
        elif frame.kind in readers:
            readers[frame.kind](frame.body)


def test_any_batch_is_refused_or_readable_by_all() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    accepted = many(mutate_a_batch)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < RESIDENT_KIB_MAX
    # Some must get through, or nothing was tested behind the checks.
    assert accepted > 0


def test_any_stream_gives_frames_or_a_violation() -> None:
    assert many(mutate_a_stream) > 0


def test_the_fuzzer_would_notice() -> None:
    """A canary: a broker that takes a batch without reading it does not pass."""
    good = check_batch(encode_payloads([b"x"], BatchHead()))

    def trusting(body: bytes) -> CheckedBatch:
        try:
            return check_batch(body)
        except Rejected:
            return good

    def run_many() -> None:
        for seed in range(500):
            dice = random.Random(seed)
            read_batch(recompressed(dice, some_batch(dice)), trusting)

    with pytest.raises((AssertionError, Rejected)):
        run_many()
