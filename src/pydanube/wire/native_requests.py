"""Requests on a native connection: channels opened, moved and closed, topics looked up."""

from typing import TYPE_CHECKING

from pydanube.broker.batches import prepare_for_batches
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.positions import CURSOR, Position, PositionKind
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.frames import Frame
from pydanube.wire.calls import parse
from pydanube.wire.native_channels import ConsumerChannel, ProducerChannel, ReaderChannel

if TYPE_CHECKING:
    from pydanube.wire.native_connection import NativeConnection


def look_up(connection: "NativeConnection", frame: Frame) -> None:
    topic = parse(pb.Lookup, frame.body).topic
    partitions = connection.broker.partitions(topic)
    advertised = connection.server.advertised
    connection.answer(
        frames.LOOKED_UP,
        0,
        frame.request,
        pb.LookedUp(
            here=True,
            connect_url=advertised.connect_url,
            broker_url=advertised.broker_url,
            proxy=advertised.is_proxied,
            partitions=partitions,
        ),
    )


async def open_producer(connection: "NativeConnection", frame: Frame) -> None:
    request = parse(pb.OpenProducer, frame.body)
    await prepare_for_batches()
    session = await connection.broker.open_producer(
        topic_name=request.topic,
        producer_name=request.name,
        dispatch=request.dispatch,
        exclusive=request.exclusive,
        subject=request.schema_subject or None,
        idempotent=request.idempotent,
        epoch=request.epoch if request.HasField("epoch") else None,
    )
    producer = session.producer
    connection.channels[frame.channel] = ProducerChannel(connection, frame.channel, producer, session.epoch)
    connection.answer(
        frames.PRODUCER_OPENED,
        frame.channel,
        frame.request,
        pb.ProducerOpened(
            producer_id=producer.id,
            epoch=session.epoch,
            last_sequence=session.last_sequence,
            message_bytes_max=producer.topic.policies.max_message_size,
        ),
    )


async def subscribe(connection: "NativeConnection", frame: Frame) -> None:
    request = parse(pb.Subscribe, frame.body)
    consumer = await connection.broker.subscribe(
        topic_name=request.topic,
        subscription_name=request.subscription,
        consumer_name=request.consumer,
        kind=request.type,
        key_filters=tuple(request.key_filters),
        start=_position(request.start),
    )
    limits = connection.server.limits
    unacked_max = min(request.unacked_max or limits.unacked_default, limits.unacked_max)
    channel = ConsumerChannel(connection, frame.channel, consumer, unacked_max)
    channel.session = connection.broker.receive(consumer.id, channel)  # sends nothing yet: there is no credit
    connection.channels[frame.channel] = channel
    connection.answer(
        frames.SUBSCRIBED,
        frame.channel,
        frame.request,
        pb.Subscribed(
            consumer_id=consumer.id,
            next_offset=consumer.subscription.next_offset,
            dispatch=pb.Dispatch.Name(connection.broker.dispatch_of(consumer)),
        ),
    )


async def open_reader(connection: "NativeConnection", frame: Frame) -> None:
    request = parse(pb.OpenReader, frame.body)
    channel = ReaderChannel(connection, frame.channel)
    channel.reader = await connection.broker.open_reader(
        topic_name=request.topic,
        start=_position(request.start),
        end=_position(request.end) if request.HasField("end") else None,
        outlet=channel,
    )
    connection.channels[frame.channel] = channel
    opened = pb.ReaderOpened(next_offset=channel.reader.next_offset)
    if channel.reader.end_offset is not None:
        opened.end_offset = channel.reader.end_offset
    connection.answer(frames.READER_OPENED, frame.channel, frame.request, opened)


async def seek(connection: "NativeConnection", frame: Frame) -> None:
    channel = connection.channels.get(frame.channel)
    if not isinstance(channel, ConsumerChannel):
        raise no_channel(frame, "consumer")
    request = parse(pb.Seek, frame.body)
    next_offset = await connection.broker.seek(channel.consumer, _position(request.position))
    connection.answer(frames.SEEKED, frame.channel, frame.request, pb.Seeked(next_offset=next_offset))


async def close_channel(connection: "NativeConnection", frame: Frame) -> None:
    channel = connection.channels.pop(frame.channel, None)
    if channel is None:
        raise no_channel(frame, "open")
    await channel.close()
    connection.answer(frames.CLOSED, frame.channel, frame.request)


def _position(message: pb.Position) -> Position:
    try:
        kind = PositionKind(message.kind)
    except ValueError:
        raise Rejected(f"unknown kind of position {message.kind}: 0 to {max(PositionKind)}") from None
    return CURSOR if kind is PositionKind.CURSOR else Position(kind, message.value)


def no_channel(frame: Frame, what: str) -> Rejected:
    text = f"this connection has no {what} channel {frame.channel}: open it first"
    return Rejected(text, ErrorCode.CHANNEL_UNKNOWN)
