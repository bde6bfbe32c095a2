"""Frames and messages of a Danube broker's files: the same bytes both ways, and every kind of damage."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pydanube.kernel.errors import Corrupt, ErrorCode
from pydanube.protocol.dnb1 import (
    Checkpoint,
    DamagedFrame,
    Frame,
    FrameDecoder,
    Message,
    RotatedFile,
    decode_checkpoint,
    decode_message,
    encode_frame,
    encode_message,
)

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "dnb1.json").read_text(encoding="utf-8")
)
"""Two messages a Danube broker wrote, and what they mean."""
FILE = b"".join([bytes.fromhex(vector["hex"]) for vector in VECTORS])


def message_of(vector: dict[str, Any]) -> Message:
    fields = dict(vector["message"])
    fields["payload"] = bytes.fromhex(fields.pop("payload_hex"))
    fields["attributes"] = tuple((name, value) for name, value in fields["attributes"])
    return Message(**fields)


def message(offset: int, payload: bytes = b"payload") -> Message:
    return Message(1, 2, "/default/t", "b:1", offset, payload, 1000, "p", None, (), None, None, None)


def frame(offset: int, payload: bytes = b"payload") -> bytes:
    return encode_frame(offset, encode_message(message(offset, payload)))


def frames_of(decoder: FrameDecoder) -> list[Frame]:
    found: list[Frame] = []
    while (next_one := decoder.next_frame()) is not None:
        found.append(next_one)
    return found


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_what_a_danube_broker_wrote_is_read_and_written_byte_for_byte(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["hex"])
    decoder = FrameDecoder()
    decoder.receive(data)

    (whole,) = frames_of(decoder)

    assert whole.offset == vector["offset"]
    assert decode_message(whole.body) == message_of(vector)
    assert encode_frame(whole.offset, encode_message(message_of(vector))) == data


@pytest.mark.parametrize("size", [1, 2, 7, 16, 17, 69, 70, 1000])
def test_the_same_frames_come_out_of_any_pieces(size: int) -> None:
    decoder = FrameDecoder()
    found: list[Frame] = []
    for start in range(0, len(FILE), size):
        decoder.receive(FILE[start : start + size])
        found += frames_of(decoder)

    assert [(each.position, each.offset) for each in found] == [(0, 0), (69, 1)]
    assert (decoder.position, decoder.held_bytes) == (len(FILE), 0)


@pytest.mark.parametrize("missing", [1, 33, 34, 40, 49])
def test_a_frame_that_is_not_all_there_is_waited_for(missing: int) -> None:
    decoder = FrameDecoder()
    decoder.receive(FILE[:-missing])

    assert len(frames_of(decoder)) == 1
    assert (decoder.position, decoder.held_bytes) == (69, 50 - missing)


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00"),
        (250, "fa"),
        (251, "fbfb00"),
        (65535, "fbffff"),
        (65536, "fc00000100"),
        (2**32 - 1, "fcffffffff"),
        (2**32, "fd0000000001000000"),
        (2**64 - 1, "fdffffffffffffffff"),
    ],
)
def test_numbers_take_the_width_they_need(number: int, encoded: str) -> None:
    body = encode_message(message(0)._replace(request_id=number))

    assert body.hex().startswith(encoded)
    assert decode_message(body).request_id == number


def test_attributes_keep_their_order_and_empty_is_not_absent() -> None:
    given = message(3)._replace(
        attributes=(("b", "1"), ("a", "ü")),
        subscription_name="",
        routing_key="",
        schema_id=0,
        schema_version=0,
    )

    assert decode_message(encode_message(given)) == given


def test_a_flipped_bit_is_found_and_named() -> None:
    damaged = bytearray(FILE)
    damaged[69 + 20] ^= 4
    decoder = FrameDecoder()
    decoder.receive(bytes(damaged))
    assert decoder.next_frame() is not None

    for _ in range(2):
        with pytest.raises(
            DamagedFrame, match="frame at byte 69 is damaged: the checksum of its 34 bytes"
        ) as caught:
            decoder.next_frame()

    assert caught.value.code is ErrorCode.SEGMENT_CORRUPT
    assert caught.value.position == 69


@pytest.mark.parametrize("length", [0, 12, 1001, 2**32 - 1])
def test_a_length_no_message_has_is_refused_before_anything_is_held(length: int) -> None:
    decoder = FrameDecoder(body_bytes_max=1000)
    decoder.receive(bytes(8) + length.to_bytes(4, "little") + bytes(4))

    with pytest.raises(DamagedFrame, match=f"its body would have {length} bytes, not 13 to 1000"):
        decoder.next_frame()


@pytest.mark.parametrize("cut", [1, 15, 16, 17, 40])
@pytest.mark.parametrize("size", [3, 64, 10_000])
def test_frames_behind_a_torn_one_are_found_again(cut: int, size: int) -> None:
    torn = frame(1)[:-cut]
    data = frame(0) + torn + frame(1) + frame(2, b"\0" * 100) + frame(3)
    decoder = FrameDecoder()
    offsets: list[int] = []
    skipped_from = -1
    for start in range(0, len(data), size):
        decoder.receive(data[start : start + size])
        while True:
            try:
                if (
                    skipped_from >= 0
                    and decoder.position < len(frame(0) + torn)
                    and not decoder.skip_damage(at_end=False)
                ):
                    break
                found = decoder.next_frame()
            except DamagedFrame as error:
                skipped_from = error.position
                continue
            if found is None:
                break
            offsets.append(found.offset)

    assert offsets == [0, 1, 2, 3]
    assert skipped_from == len(frame(0))


def test_at_the_end_a_frame_that_lacks_bytes_is_none() -> None:
    decoder = FrameDecoder()
    decoder.receive(b"\xff" * 30 + frame(7)[:-1])
    assert not decoder.skip_damage(at_end=False)
    assert decoder.position == 30
    assert not decoder.skip_damage(at_end=True)


def test_a_payload_that_holds_frames_is_not_searched_while_all_is_well() -> None:
    inner = frame(99)
    decoder = FrameDecoder()
    decoder.receive(frame(0, inner) + frame(1))

    assert [each.offset for each in frames_of(decoder)] == [0, 1]


def body_with(changed: bytes, *, at: int) -> bytes:
    body = encode_message(message(0))
    return body[:at] + changed + body[at + len(changed) :]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "ends inside a number"),
        (body_with(b"\xfe", at=0), "a number begins with 0xfe"),
        (body_with(b"\xff", at=0), "a number begins with 0xff"),
        (b"\x01\x01\xfd\xff\xff", "ends inside a number"),
        (body_with(b"\xfa", at=2), "a field of 250 bytes does not fit"),
        (body_with(b"\xff", at=4), "a text is not UTF-8"),
        (encode_message(message(0)) + b"\0", "1 bytes are left over"),
        (encode_message(message(0))[:-4] + b"\xfa\0\0\0", "a list of 250 does not fit"),
        (encode_message(message(0))[:-1] + b"\2", "an optional value begins with 2"),
        (
            encode_message(message(0))[:-2] + b"\1\xfd" + (2**32).to_bytes(8, "little") + b"\0",
            "the number 4294967296 exceeds 4294967295",
        ),
    ],
)
def test_a_body_that_is_no_message_is_refused(body: bytes, why: str) -> None:
    with pytest.raises(DamagedFrame, match=why) as caught:
        decode_message(body, 4711)
    assert caught.value.position == 4711


CHECKPOINT = bytes.fromhex(
    "00"  # start
    "fb2c01"  # last
    "02"  # sequence
    "0c"
    + b"/d/wal.2.log".hex()
    + "02"  # two rotated files
    + ("00" + "0a" + b"/d/wal.log".hex() + "00")
    + ("01" + "0c" + b"/d/wal.1.log".hex() + "64")
    + ("01" + "09" + b"wal.2.log".hex())
    + "00"
    + "01c8"
)


def test_a_checkpoint_is_read() -> None:
    assert decode_checkpoint(CHECKPOINT) == Checkpoint(
        start_offset=0,
        last_offset=300,
        file_sequence=2,
        file_path="/d/wal.2.log",
        rotated_files=(RotatedFile(0, "/d/wal.log", 0), RotatedFile(1, "/d/wal.1.log", 100)),
        active_file_name="wal.2.log",
        last_rotation_at=None,
        active_file_first_offset=200,
    )


@pytest.mark.parametrize("data", [b"", CHECKPOINT[:-1], CHECKPOINT + b"\0", bytes(17 * 1024 * 1024)])
def test_a_checkpoint_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt, match="the checkpoint is damaged"):
        decode_checkpoint(data)


def test_the_checksum_is_that_of_zlib() -> None:
    assert int.from_bytes(FILE[12:16], "little") == crc32(FILE[16:69]) == 0x0EF7E19A
