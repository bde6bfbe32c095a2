"""Server-stream delivery: the price of handing one message to one consumer.

The yardsticks stream one prepared message as fast as flow control allows. A broker cannot do that, so
ours is seen from three sides:

* fan-out: publish on a non-reliable topic with n consumers attached, less what the same publish costs
  without any, taken moments before;
* catch-up: consumers that open their streams on a filled reliable topic, all of it within their window,
  and ack nothing: delivery and nothing else;
* acked: the same, each message acked by a unary call, as every Danube client does.
"""

import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from bench import servers
from bench.danube_api import PublishRequest, connected
from bench.load import Shape, Tally, publish, reading
from bench.plan import Measurement, Meter, Plan
from bench.publish import measure as measure_publish
from bench.publish import prepare_request
from bench.results import Sample
from bench.servers import Server

SCENARIO = "delivery"
PAYLOAD_BYTES = 1024
FAN_OUTS = (1, 4)
FAN_OUT_SHAPE = Shape(4, 16)
FILL_SHAPE = Shape(4, 64)
DRAIN_SECONDS = 0.3
WINDOW_DEFAULT = 10
WINDOW_MAX = 10_000
CATCH_UP_CONSUMERS = 4
ACK_WORKERS = 64

CATCH_UP = "catch-up, no acks"
ACKED_DEFAULT_WINDOW = f"acked, window {WINDOW_DEFAULT}"
ACKED_WIDE_WINDOW = f"acked, window {WINDOW_MAX:,}"

_topic_numbers = count(1)


def stream_case(streams: int) -> str:
    return f"{streams} stream{'s' if streams > 1 else ''}"


def run(plan: Plan) -> None:
    if plan.tools.consume is None:
        return
    with ExitStack() as stack:
        yardsticks = plan.start(stack, servers.running_grpcio(plan.scratch))
        if plan.tools.grpc_go_server is not None:
            yardsticks += plan.start(stack, servers.running_grpc_go(plan.scratch, plan.tools.grpc_go_server))
        plan.interleave(
            SCENARIO,
            [
                *_broker_measurements(plan, stack, plan.tools.consume),
                *_yardstick_measurements(plan, yardsticks, plan.tools.consume),
            ],
        )


def _yardstick_measurements(plan: Plan, yardsticks: list[Server], consume: Path) -> list[Measurement]:
    return [
        Measurement(stream_case(streams), server.name, partial(_stream, plan, server, consume, streams))
        for streams in FAN_OUTS
        for server in yardsticks
    ]


def _broker_measurements(plan: Plan, stack: ExitStack, consume: Path) -> list[Measurement]:
    builds = [servers.OURS, *([servers.OURS_INTERPRETED] if servers.compiled_modules() else [])]
    measurements = []
    for build in builds:
        for broker in plan.start(stack, servers.running_broker(plan.scratch, name=build)):
            request = prepare_request(plan, broker, "fan_out_none", PAYLOAD_BYTES)
            measurements += [
                Measurement(stream_case(n), build, partial(_fan_out, plan, broker, consume, n, request))
                for n in FAN_OUTS
            ]
            acked = partial(_acked, plan, broker, consume, messages=3_000, ack_workers=WINDOW_DEFAULT)
            measurements.append(Measurement(ACKED_DEFAULT_WINDOW, build, acked))
        wide = servers.running_broker(plan.scratch, name=build, max_unacked_messages=WINDOW_MAX)
        for broker in plan.start(stack, wide):
            acked = partial(_acked, plan, broker, consume, messages=WINDOW_MAX, ack_workers=ACK_WORKERS)
            measurements += [
                Measurement(CATCH_UP, build, partial(_catch_up, plan, broker, consume)),
                Measurement(ACKED_WIDE_WINDOW, build, acked),
            ]
    return measurements


def _stream(plan: Plan, server: Server, consume: Path, streams: int) -> Sample:
    meter = Meter(server)
    with reading(consume, server.address, [1] * streams, seconds=plan.seconds) as reader:
        return meter.sample(reader.wait())


def _fan_out(plan: Plan, broker: Server, consume: Path, consumers: int, alone: PublishRequest) -> Sample:
    """Publish with consumers attached, and subtract the price of publishing."""
    without = measure_publish(broker, alone, FAN_OUT_SHAPE, plan.seconds)
    request = prepare_request(plan, broker, f"fan_out_{consumers}", PAYLOAD_BYTES)
    with connected(broker.address) as api:
        ids = [api.subscribe(request.topic, f"s{n}", f"c{n}") for n in range(consumers)]
    with reading(consume, broker.address, ids) as reader:
        meter = Meter(broker)
        published = publish(broker.address, request, FAN_OUT_SHAPE, seconds=plan.seconds)
        time.sleep(DRAIN_SECONDS)  # whatever is still under way belongs to the delivery
        sample = meter.sample(reader.finish())
    return replace(
        sample,
        cpu_seconds=sample.cpu_seconds - without.cpu_us * published.messages / 1e6,
        dropped=published.messages * consumers - sample.messages,
    )


def _catch_up(plan: Plan, broker: Server, consume: Path) -> Sample:
    """Open several consumers one after the other on the same filled topic."""
    topic = _fresh_topic()
    subscriptions = [f"s{n}" for n in range(CATCH_UP_CONSUMERS)]
    ids = _fill(plan, broker, topic, subscriptions, WINDOW_MAX)
    meter = Meter(broker)
    messages, seconds = 0, 0.0
    for consumer_id in ids:
        with reading(consume, broker.address, [consumer_id], count=WINDOW_MAX) as reader:
            tally = reader.wait()
        messages += tally.messages
        seconds += tally.seconds
    return meter.sample(Tally(messages, seconds))


def _acked(plan: Plan, broker: Server, consume: Path, *, messages: int, ack_workers: int) -> Sample:
    topic = _fresh_topic()
    ids = _fill(plan, broker, topic, ["s"], messages)
    meter = Meter(broker)
    with reading(
        consume, broker.address, ids, subscription="s", ack_workers=ack_workers, count=messages
    ) as reader:
        return meter.sample(reader.wait())


def _fresh_topic() -> str:
    return f"/default/bench_filled_{next(_topic_numbers)}"


def _fill(plan: Plan, broker: Server, topic: str, subscriptions: list[str], messages: int) -> list[int]:
    """Subscribe first, since a new subscription starts at the topic's end, then publish durably."""
    with connected(broker.address) as api:
        producer_id = api.create_producer(topic, "bench", reliable=True)
        ids = [api.subscribe(topic, name, f"reader-of-{name}") for name in subscriptions]
    request = PublishRequest.write(
        plan.scratch, producer_id=producer_id, topic=topic, payload_bytes=PAYLOAD_BYTES
    )
    publish(broker.address, request, FILL_SHAPE, count=messages)
    return ids
