"""Messages of an application as entry bodies: one as a row, several as a batch.

A body comes in parts, to be sent one after the other: nobody joins what the socket would take apart again.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol import danube_pb2
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import batch as layout
from pydanube.protocol.native.payload_batch import encode_payload_batch
from pydanube.protocol.native.timing import (
    COMPACTION_KEY_ATTRIBUTE,
    DELIVER_AFTER_ATTRIBUTE,
    DELIVER_AT_ATTRIBUTE,
    TTL_ATTRIBUTE,
)

ROW_BYTES_MAX: Final = 4 * 1024 * 1024 - 8 * 1024
"""Largest row the protocol allows."""

Codec = Literal["lz4", "zstd"] | None
CODECS: Final[dict[Codec, int]] = {None: layout.NONE, "lz4": layout.LZ4, "zstd": layout.ZSTD}


class Sender(NamedTuple):
    """Who publishes, as the broker knows it, and the schema of messages that name none themselves."""

    producer_id: int
    name: str
    topic: str
    schema_id: int | None = None
    schema_version: int | None = None


class Timing(NamedTuple):
    """When messages are delivered and until when they live, all in milliseconds; 0 stands for none."""

    deliver_at: int
    deliver_after: int
    ttl: int


class Common(NamedTuple):
    """What all messages of one publish share."""

    publish_time: int | None
    timing: Timing
    key: str | None = None
    attributes: Mapping[str, str] | None = None
    schema_id: int | None = None
    schema_version: int | None = None


def encode_row(sender: Sender, payload: bytes, common: Common, compaction_key: bytes | None) -> list[bytes]:
    """One message as a StreamMessage."""
    attributes = dict(common.attributes or ())
    deliver_at, deliver_after, ttl = common.timing
    if deliver_at:
        attributes[DELIVER_AT_ATTRIBUTE] = str(deliver_at)
    if deliver_after:
        attributes[DELIVER_AFTER_ATTRIBUTE] = str(deliver_after)
    if ttl:
        attributes[TTL_ATTRIBUTE] = str(ttl)
    if compaction_key is not None:
        attributes[COMPACTION_KEY_ATTRIBUTE] = compaction_key.decode()
    schema_id, schema_version = _schema(sender, common.schema_id, common.schema_version)
    row = danube_pb2.StreamMessage(
        msg_id=danube_pb2.MsgID(producer_id=sender.producer_id, topic_name=sender.topic),
        payload=payload,
        publish_time=common.publish_time or 0,
        producer_name=sender.name,
        attributes=attributes,
        schema_id=schema_id,
        schema_version=schema_version,
        routing_key=common.key,
    )
    body = row.SerializeToString()
    if len(body) > ROW_BYTES_MAX:
        raise Rejected(
            f"{sender.topic}: a message of {len(body)} bytes exceeds the {ROW_BYTES_MAX} one may have: "
            "split it, or store it elsewhere and send where it is",
            ErrorCode.MESSAGE_TOO_LARGE,
        )
    return [body]


def encode_payloads(sender: Sender, payloads: list[bytes], common: Common, codec: Codec) -> list[bytes]:
    """Several messages that share everything but their payloads, as a batch."""
    if codec is None:
        return encode_payload_batch(payloads, encode_head(sender, common).SerializeToString())
    return encode_columns(sender, payloads, common, codec)


def encode_columns(
    sender: Sender,
    payloads: Sequence[bytes],
    common: Common,
    codec: Codec,
    *,
    routing_keys: Sequence[str | None] | None = None,
    attributes: Sequence[Mapping[str, str] | None] | None = None,
    publish_times: Sequence[int] | None = None,
    schema_ids: Sequence[int | None] | None = None,
    schema_versions: Sequence[int | None] | None = None,
    compaction_keys: Sequence[bytes | None] | None = None,
) -> list[bytes]:
    """Several messages as a batch."""
    # Here, because Arrow takes longer to load than a small program to run.
    from pydanube.protocol.native import arrow  # noqa: PLC0415

    if sender.schema_id is not None and schema_ids is not None:
        versions = schema_versions or [None] * len(schema_ids)
        named = [_schema(sender, *each) for each in zip(schema_ids, versions, strict=True)]
        schema_ids, schema_versions = [each[0] for each in named], [each[1] for each in named]
    body = arrow.encode_payloads(
        payloads,
        encode_head(sender, common),
        codec=CODECS[codec],
        routing_keys=routing_keys,
        attributes=attributes,
        publish_times=publish_times,
        schema_ids=schema_ids,
        schema_versions=schema_versions,
        compaction_keys=compaction_keys,
    )
    return [body]


def encode_head(sender: Sender, common: Common) -> pb.BatchHead:
    deliver_at, deliver_after, ttl = common.timing
    schema_id, schema_version = _schema(sender, common.schema_id, common.schema_version)
    return pb.BatchHead(
        producer_id=sender.producer_id,
        producer_name=sender.name,
        publish_time=common.publish_time,
        schema_id=schema_id,
        schema_version=schema_version,
        routing_key=common.key,
        attributes=common.attributes or {},
        deliver_at=deliver_at or None,
        deliver_after=deliver_after or None,
        ttl=ttl or None,
    )


def _schema(
    sender: Sender, schema_id: int | None, schema_version: int | None
) -> tuple[int | None, int | None]:
    """What a message names itself, or its sender's schema."""
    if schema_id is None and schema_version is None:
        return sender.schema_id, sender.schema_version
    return schema_id, schema_version
