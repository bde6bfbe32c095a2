import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import AckRequest, MessageResponse, MsgID, NackRequest, StreamMessage
from pydanube.protocol.messages import (
    OFFSET_SUFFIX_BYTES_MAX,
    encode_request_id,
    encode_varint,
    offset_suffix,
    routing_key,
    scan_ack,
    scan_publish,
)

uint64 = st.integers(0, 2**64 - 1)
text = st.text(max_size=40)
messages = st.builds(
    StreamMessage,
    request_id=uint64,
    msg_id=st.builds(MsgID, producer_id=uint64, topic_name=text, broker_addr=text, topic_offset=uint64),
    payload=st.binary(max_size=300),
    publish_time=uint64,
    producer_name=text,
    subscription_name=text,
    attributes=st.dictionaries(text, text, max_size=4),
    schema_id=st.none() | uint64,
    schema_version=st.none() | st.integers(0, 2**32 - 1),
    routing_key=st.none() | text,
)


@given(messages)
def test_a_scan_sees_what_a_decoder_sees(message: StreamMessage) -> None:
    scan = scan_publish(message.SerializeToString())
    assert scan.request_id == message.request_id
    assert scan.has_msg_id
    assert scan.producer_id == message.msg_id.producer_id
    assert scan.topic_name.decode() == message.msg_id.topic_name
    assert scan.payload_bytes == len(message.payload)


@given(messages, uint64)
def test_the_suffix_overwrites_the_offset_and_nothing_else(message: StreamMessage, offset: int) -> None:
    suffix = offset_suffix(offset)
    delivered = StreamMessage.FromString(message.SerializeToString() + suffix)
    message.msg_id.topic_offset = offset
    assert delivered == message
    assert len(suffix) <= OFFSET_SUFFIX_BYTES_MAX


@given(messages)
def test_the_routing_key_is_the_message_s_or_its_producer_s_name(message: StreamMessage) -> None:
    expected = message.routing_key if message.HasField("routing_key") else message.producer_name
    assert routing_key(message.SerializeToString()) == expected.encode()


def test_an_empty_routing_key_that_is_present_is_a_key() -> None:
    message = StreamMessage(producer_name="p", routing_key="")
    assert routing_key(message.SerializeToString()) == b""


@given(uint64, text, uint64, text)
def test_an_ack_is_addressed_by_topic_subscription_and_offset(
    request_id: int, topic: str, offset: int, subscription: str
) -> None:
    msg_id = MsgID(topic_name=topic, topic_offset=offset, producer_id=7, broker_addr="b")
    for kind in (AckRequest, NackRequest):
        request = kind(request_id=request_id, msg_id=msg_id, subscription_name=subscription)
        scan = scan_ack(request.SerializeToString())
        assert scan.has_msg_id
        assert (scan.request_id, scan.topic_name.decode(), scan.topic_offset, scan.subscription.decode()) == (
            request_id,
            topic,
            offset,
            subscription,
        )


def test_a_missing_msg_id_is_seen() -> None:
    assert not scan_publish(StreamMessage(payload=b"x").SerializeToString()).has_msg_id
    assert not scan_ack(AckRequest(request_id=1).SerializeToString()).has_msg_id


def test_a_repeated_field_counts_as_its_last_occurrence() -> None:
    first = StreamMessage(request_id=1, msg_id=MsgID(producer_id=5, topic_name="/a/b"), payload=b"long one")
    second = StreamMessage(request_id=2, msg_id=MsgID(producer_id=6), payload=b"y")
    scan = scan_publish(first.SerializeToString() + second.SerializeToString())
    assert (scan.request_id, scan.producer_id, scan.topic_name, scan.payload_bytes) == (2, 6, b"/a/b", 1)


@given(uint64)
def test_a_response_echoes_the_request_id(request_id: int) -> None:
    assert encode_request_id(request_id) == MessageResponse(request_id=request_id).SerializeToString()


@pytest.mark.parametrize(
    "body",
    [
        b"\x08",  # a number without its bytes
        b"\x08" + b"\xff" * 10 + b"\x01",  # a number of eleven bytes
        b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a number of 70 bits
        b"\x1a\x05abc",  # a payload cut off
        b"\x18\x01",  # the payload as a number: some decoders refuse the message
        b"\x0a\x01a",  # the request id as bytes
        b"\x2a\x01\xff",  # a producer name that is not UTF-8
        b"\x52\x02\xc3\x28",  # a routing key that is not UTF-8
        b"\x3a\x03\x0a\x01\xff",  # an attribute's name that is not UTF-8
        b"\x3a\x02\x08\x01",  # an attribute's name as a number
        b"\x12\x02\x10\x01",  # the topic name as a number
        b"\x12\x03\x12\x05a",  # a topic name longer than its msg_id
        b"\x00\x00",  # field number 0
        b"\x63\x64",  # a group, which no client sends
        b"\x61\x00",  # a fixed64 cut off
    ],
)
def test_what_some_client_could_not_decode_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected, match="malformed") as refused:
        scan_publish(body)
    assert refused.value.code is ErrorCode.MALFORMED_REQUEST


def test_unknown_fields_of_newer_clients_are_passed_over() -> None:
    known = StreamMessage(request_id=3, msg_id=MsgID(producer_id=1)).SerializeToString()
    later = b"\x58\x01" + b"\x62\x02hi" + b"\x69" + bytes(8) + b"\x75" + bytes(4)
    assert scan_publish(later + known).request_id == 3


@given(uint64)
def test_varints_are_protobuf_s(value: int) -> None:
    assert b"\x08" + encode_varint(value) == (
        MessageResponse(request_id=value).SerializeToString() or b"\x08\x00"
    )
