"""Delivery times and times to live: the same for rows and batches, and a bad number is named."""

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.arrow import encode_payloads
from pydanube.protocol.native.head_scan import TIME_MS_MAX
from pydanube.protocol.native.timing import timing
from pydanube.protocol.native_pb2 import BatchHead


def row(attributes: dict[str, str], payload: bytes = b"") -> bytes:
    return StreamMessage(payload=payload, attributes=attributes).SerializeToString()


def test_most_messages_have_none() -> None:
    assert timing(row({})) == (0, 0, 0)
    assert timing(b"") == (0, 0, 0)
    assert timing(row({"k": "x-ttl"}, b"x-deliver-at")) == (0, 0, 0)
    assert timing(encode_payloads([b""], BatchHead())) == (0, 0, 0)


def test_rows_say_it_in_attributes() -> None:
    assert timing(row({"x-deliver-at": "5"})) == (5, 0, 0)
    assert timing(row({"x-deliver-after": "6", "x-ttl": str(TIME_MS_MAX)})) == (0, 6, TIME_MS_MAX)


def test_batches_say_it_in_their_head() -> None:
    head = BatchHead(deliver_at=1, deliver_after=2, ttl=3)
    assert timing(encode_payloads([b"", b""], head)) == (1, 2, 3)


def test_the_last_of_a_repeated_attribute_counts() -> None:
    assert timing(row({"x-ttl": "1"}) + row({"x-ttl": "2"})) == (0, 0, 2)


@pytest.mark.parametrize("name", ["x-deliver-at", "x-deliver-after", "x-ttl"])
@pytest.mark.parametrize(
    "text", ["", "-1", "+1", "1.5", "1_0", " 1", "1 ", "٣", "²", "ten", str(TIME_MS_MAX + 1), "0" * 20]
)
def test_a_bad_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(Rejected) as refusal:
        timing(row({name: text}))
    assert refusal.value.code is ErrorCode.ARGUMENT_INVALID
    assert name in refusal.value.text


def test_what_cannot_be_read_is_refused() -> None:
    for body, code in (
        (row({"x-ttl": "1"})[:-1], ErrorCode.MALFORMED_REQUEST),
        (b"\x00", ErrorCode.BATCH_INVALID),
        (
            encode_payloads([b""], BatchHead(producer_name="p")).replace(b"\x12\x01p", b"\x12\x09p"),
            ErrorCode.BATCH_INVALID,
        ),
    ):
        with pytest.raises(Rejected) as refusal:
            timing(body)
        assert refusal.value.code is code
