"""Files as a Danube broker leaves them."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pydanube.protocol.dnb1 import Message, encode_frame, encode_message

Write = Callable[..., Path]


def message(offset: int, payload: bytes | None = None, topic: str = "/default/orders") -> Message:
    return Message(
        request_id=offset + 1000,
        producer_id=7,
        topic_name=topic,
        broker_addr="b:6650",
        topic_offset=offset,
        payload=b"message %d" % offset if payload is None else payload,
        publish_time=1_700_000_000_000 + offset,
        producer_name="p",
        subscription_name="",
        attributes=(),
        schema_id=None,
        schema_version=None,
        routing_key=None,
    )


def frames(offsets: Iterable[int], payload: bytes | None = None) -> bytes:
    return b"".join([encode_frame(offset, encode_message(message(offset, payload))) for offset in offsets])


@pytest.fixture
def make_message() -> Callable[..., Message]:
    return message


@pytest.fixture
def make_frames() -> Callable[..., bytes]:
    """Frames with these offsets, each with a payload that names its offset or with the one given."""
    return frames


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder
