"""The few Danube calls that prepare a measurement: topics, producers, subscriptions, metrics."""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from pydanube.protocol import danube_pb2 as pb

CALL_TIMEOUT_SECONDS = 10


class MetricMissingError(Exception):
    """The broker does not export what a measurement is counted by."""


class DanubeApi:
    """A blocking client of one broker."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def create_producer(self, topic: str, name: str, *, reliable: bool) -> int:
        request = pb.ProducerRequest(
            request_id=1,
            producer_name=name,
            topic_name=topic,
            dispatch_strategy=pb.Reliable if reliable else pb.NonReliable,
        )
        response = self._call("ProducerService/CreateProducer", request, pb.ProducerResponse)
        return int(response.producer_id)

    def subscribe(self, topic: str, subscription: str, consumer: str) -> int:
        request = pb.ConsumerRequest(
            request_id=1,
            topic_name=topic,
            consumer_name=consumer,
            subscription=subscription,
            subscription_type=pb.ConsumerRequest.Exclusive,
        )
        return int(self._call("ConsumerService/Subscribe", request, pb.ConsumerResponse).consumer_id)

    def _call(self, method: str, request: Any, response_type: Any) -> Any:
        call = self._channel.unary_unary(
            f"/danube.{method}", request.SerializeToString, response_type.FromString
        )
        return call(request, timeout=CALL_TIMEOUT_SECONDS)


@contextmanager
def connected(address: str) -> Iterator[DanubeApi]:
    with grpc.insecure_channel(address) as channel:
        yield DanubeApi(channel)


@dataclass(frozen=True, slots=True)
class PublishRequest:
    """A file with one gRPC-framed SendMessage request, and how many bytes its answer brings."""

    topic: str
    body: Path
    response_bytes: int

    @classmethod
    def write(cls, folder: Path, *, producer_id: int, topic: str, payload_bytes: int) -> "PublishRequest":
        message = pb.StreamMessage(
            request_id=1,
            msg_id=pb.MsgID(producer_id=producer_id, topic_name=topic, broker_addr="http://127.0.0.1:6650"),
            payload=b"x" * payload_bytes,
            publish_time=1700000000000,
            producer_name="bench",
        )
        body = folder / f"publish-{producer_id}-{payload_bytes}.bin"
        body.write_bytes(_grpc_frame(message.SerializeToString()))
        response = _grpc_frame(pb.MessageResponse(request_id=1).SerializeToString())
        return cls(topic, body, len(response))


def _grpc_frame(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def read_counter(metrics_address: str, name: str) -> float:
    """The sum of a counter over all its labels, from the broker's Prometheus page."""
    url = f"http://{metrics_address}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=CALL_TIMEOUT_SECONDS) as page:
            text = page.read().decode()
    except OSError as error:
        raise MetricMissingError(f"no metrics page: {error}") from error
    values = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)", text, flags=re.MULTILINE)
    if not values:
        raise MetricMissingError(f"the broker exports no metric {name}")
    return float(sum(map(float, values)))
