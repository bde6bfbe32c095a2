"""The broker's own reading of a batch's head agrees with the protobuf library, or is stricter."""

import random
from contextlib import suppress

import pytest
from google.protobuf.message import DecodeError

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.names import NAME_CHARACTERS_MAX
from pydanube.protocol.native.head import RESERVED_ATTRIBUTES
from pydanube.protocol.native.head_scan import TIME_MS_MAX, HeadScan, scan_head
from pydanube.protocol.native_pb2 import BatchHead, Publisher

FIELDS = ("producer_id", "schema_id", "schema_version", "deliver_at", "deliver_after", "ttl")
FULL = BatchHead(
    producer_id=2**64 - 1,
    producer_name="ü" * NAME_CHARACTERS_MAX,
    publish_time=TIME_MS_MAX,
    schema_id=2**64 - 1,
    schema_version=2**32 - 1,
    routing_key="key",
    attributes={"a": "1", "ü": ""},
    deliver_at=TIME_MS_MAX,
    deliver_after=1,
    ttl=2,
    padding=bytes(5),
)


def facts(head: BatchHead | HeadScan) -> list[int]:
    return [getattr(head, name) for name in FIELDS]


def refused(head: bytes, why: str) -> None:
    with pytest.raises(Rejected, match=why) as refusal:
        scan_head(head)
    assert refusal.value.code is ErrorCode.BATCH_INVALID


@pytest.mark.parametrize(
    "head", [BatchHead(), BatchHead(producer_id=1), FULL], ids=["empty", "small", "full"]
)
def test_it_finds_what_the_library_finds(head: BatchHead) -> None:
    scan = scan_head(head.SerializeToString())
    assert facts(scan) == facts(head)
    assert (scan.has_publishers, scan.reserved) == (False, b"")


def test_the_last_of_several_counts() -> None:
    twice = BatchHead(ttl=7).SerializeToString() + BatchHead(ttl=9).SerializeToString()
    assert scan_head(twice).ttl == BatchHead.FromString(twice).ttl == 9


def test_publishers_are_noticed() -> None:
    assert scan_head(BatchHead(publishers=[Publisher()]).SerializeToString()).has_publishers


@pytest.mark.parametrize("name", sorted(RESERVED_ATTRIBUTES))
def test_an_attribute_with_a_place_of_its_own_is_noticed(name: str) -> None:
    head = (
        BatchHead(attributes={name: "1"}).SerializeToString()
        + BatchHead(attributes={"z": ""}).SerializeToString()
    )
    assert scan_head(head).reserved == name.encode()


def test_what_a_later_release_adds_is_passed_over() -> None:
    later = b"\x68\x05" + b"\x72\x02ab" + b"\x79" + bytes(8) + b"\x85\x01" + bytes(4)
    assert scan_head(BatchHead(ttl=3).SerializeToString() + later).ttl == 3


@pytest.mark.parametrize("name", ["publish_time", "deliver_at", "deliver_after", "ttl"])
def test_a_time_beyond_what_a_column_holds_is_refused(name: str) -> None:
    refused(BatchHead(**{name: TIME_MS_MAX + 1}).SerializeToString(), f"{name} exceeds")


def test_a_name_too_long_is_refused() -> None:
    refused(BatchHead(producer_name="ü" * (NAME_CHARACTERS_MAX + 1)).SerializeToString(), "more than")


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (b"\x08", "cut off"),
        (b"\x12\x05ab", "5 bytes, 2 are left"),
        (b"\x12\x01\xff", "not UTF-8"),
        (b"\x32\x01\xff", "not UTF-8"),
        (b"\x3a\x03\x0a\x01\xff", "not UTF-8"),
        (b"\x3a\x02\x08\x01", "not one of an attribute's"),
        (b"\x0a\x00", "tag 10 is not one of this message's"),
        (b"\x6b", "wire type 3"),
        (b"\x00", "tag 0 is not one of this message's"),
    ],
)
def test_what_some_decoder_would_refuse_is_refused(head: bytes, why: str) -> None:
    refused(head, why)


def test_no_damage_gets_past_it_that_the_library_refuses_or_reads_otherwise() -> None:
    dice = random.Random(11)
    head = BatchHead()
    head.CopyFrom(FULL)
    head.producer_name = "shop"
    whole = head.SerializeToString()
    accepted = 0
    for _ in range(20_000):
        damaged = bytearray(whole)
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        if dice.random() < 0.2:
            del damaged[dice.randrange(len(damaged)) :]
        with suppress(Rejected):
            scan = scan_head(bytes(damaged))
            if scan.has_publishers:
                continue  # refused whatever they are
            try:
                expected = BatchHead.FromString(bytes(damaged))
            except DecodeError as error:
                raise AssertionError(damaged.hex()) from error
            assert facts(scan) == facts(expected), damaged.hex()
            assert not expected.publishers
            accepted += 1
    assert accepted > 1000
