"""Arbitrary and mutated files of a Danube broker: `Corrupt` or messages, never another exception, and always an end.

    pytest tests/fuzz/test_fuzz_dnb1.py                     about four seconds
    FUZZ_SECONDS=600 pytest tests/fuzz/test_fuzz_dnb1.py    as long as asked

A failure prints the seed that replays it: FUZZ_SEED=… runs that one case of each test.
"""

import os
import random
import struct
import time
from collections.abc import Callable
from zlib import crc32

import pytest

from pydanube.kernel.errors import Corrupt
from pydanube.protocol.dnb1 import (
    DamagedFrame,
    FrameDecoder,
    Message,
    decode_checkpoint,
    decode_message,
    encode_frame,
    encode_message,
)

SECONDS = float(os.environ.get("FUZZ_SECONDS", "4"))
SEED = os.environ.get("FUZZ_SEED")
BODY_MAX = 500
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


def some_message(dice: random.Random, offset: int) -> Message:
    number = dice.choice([0, 1, 250, 251, 2**16, 2**32, 2**64 - 1])
    text = dice.choice([None, "", "ä", "k" * 260])
    attributes = (("a", "b"), ("", "ü"))[: dice.randrange(3)]
    payload = dice.choice([b"", bytes(40), dice.randbytes(40), encode_frame(offset, b"x" * 13)])
    return Message(
        number, number, "/default/t", text or "", offset, payload, number, "p", text, attributes, 7, 1, text
    )


def mutated(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.choice([0, 1, 1, 2, 8])):
        at = dice.randrange(len(changed) + 1)
        choice = dice.randrange(5)
        if choice == 0:
            changed[at:at] = dice.randbytes(dice.randrange(1, 40))
        elif choice == 1:
            del changed[at : at + dice.randrange(1, 40)]
        elif choice == 2:
            changed[at : at + 4] = struct.pack("<I", dice.choice([0, 12, 13, BODY_MAX, 2**31, 2**32 - 1]))
        elif choice == 3:
            changed[at : at + 1] = dice.choice([b"\xfb", b"\xfc", b"\xfd", b"\xfe", b"\xff", b"\0"])
        else:
            changed[at:at] = bytes(dice.randrange(1, 200))
    return bytes(changed)


def test_files() -> None:
    """Every piece is accounted for, frames never overlap, and what is held is bounded."""

    def case(dice: random.Random) -> bool:
        messages = [some_message(dice, offset) for offset in range(dice.randrange(6))]
        data = b"".join([encode_frame(m.topic_offset, encode_message(m)) for m in messages])
        data = mutated(dice, data) if dice.random() < 0.9 else dice.randbytes(dice.randrange(400))
        decoder = FrameDecoder(body_bytes_max=BODY_MAX)
        end = found = at = 0
        is_damaged = False
        while True:
            piece = data[at : at + dice.choice([1, 16, 100, 5000])]
            at += len(piece)
            decoder.receive(piece)
            while True:
                if is_damaged and not decoder.skip_damage(at_end=not piece):
                    break
                is_damaged = False
                try:
                    frame = decoder.next_frame()
                    if frame is None:
                        break
                    assert end <= frame.position <= len(data) - 16 - len(frame.body)
                    end = frame.position + 16 + len(frame.body)
                    assert crc32(data[frame.position + 16 : end]) == crc32(frame.body)
                    decode_message(frame.body, frame.position)
                    found += 1
                except DamagedFrame as error:
                    is_damaged = error.position == decoder.position
            assert decoder.position + decoder.held_bytes == at
            assert decoder.held_bytes <= 16 + BODY_MAX + len(piece)
            if not piece:
                return found > 0

    assert many(case) > 10


def test_bodies_whose_checksum_is_right() -> None:
    def case(dice: random.Random) -> bool:
        body = mutated(dice, encode_message(some_message(dice, 3)))
        try:
            message = decode_message(body)
        except Corrupt:
            return False
        # Numbers may have been stored wider than needed: what is read must still mean the same.
        assert decode_message(encode_message(message)) == message
        return True

    assert many(case) > 10


def test_checkpoints() -> None:
    start = (
        bytes.fromhex("00fb2c0102")
        + b"\x07wal.log\x01\x00\x07wal.log\x00"
        + bytes.fromhex("0000")
        + b"\1\x05"
    )

    def case(dice: random.Random) -> bool:
        try:
            checkpoint = decode_checkpoint(mutated(dice, start))
        except Corrupt:
            return False
        assert len(checkpoint.rotated_files) <= 100
        return True

    assert many(case) > 10
