"""Arbitrary bytes at the protobuf entry points: a scan succeeds only where every decoder would."""

import os

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st

from pydanube.kernel.errors import Rejected
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.messages import offset_suffix, routing_key, scan_ack, scan_publish

SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
thorough = settings(max_examples=1_000 + 500 * SECONDS, deadline=None)

fragments = st.sampled_from(
    [b"\x08\x01", b"\x12\x04\x12\x02/a", b"\x1a\x02hi", b"\x2a\x01p", b"\x3a\x06\x0a\x01k\x12\x01v", b"\x52\x00", b"\x28\x80\x01"]
)  # fmt: skip
bodies = st.binary(max_size=60) | st.lists(fragments | st.binary(max_size=4), max_size=8).map(b"".join)


@thorough
@given(bodies)
def test_what_the_scan_accepts_a_decoder_accepts_too(body: bytes) -> None:
    try:
        scan = scan_publish(body)
    except Rejected:
        return
    decoded = StreamMessage.FromString(body + offset_suffix(5))
    assert decoded.msg_id.topic_offset == 5
    assert decoded.request_id == scan.request_id
    assert decoded.msg_id.topic_name.encode() == scan.topic_name
    assert routing_key(body) is not None


@thorough
@given(bodies)
def test_an_ack_scan_answers_or_refuses(body: bytes) -> None:
    try:
        scan_ack(body)
    except Rejected:
        return


@thorough
@given(bodies)
def test_the_canary_a_decoder_refuses_some_of_these(body: bytes) -> None:
    """Guards the rig itself: the generator must produce bytes that are no message."""
    try:
        StreamMessage.FromString(b"\x0b" + body)
    except DecodeError:
        return
    assert b"\x0c" in body
