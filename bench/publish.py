"""Unary publish on a non-reliable topic: the price of a call at the front door."""

from contextlib import ExitStack
from functools import partial

from bench import servers
from bench.danube_api import PublishRequest, connected
from bench.load import Shape, publish
from bench.plan import Measurement, Meter, Plan
from bench.results import Sample
from bench.servers import Server

SCENARIO = "publish"
SHAPES = (Shape(1, 1), Shape(4, 16))
PAYLOADS = (128, 1024)
WARM_UP_SECONDS = 0.3


def case_name(shape: Shape, payload_bytes: int) -> str:
    return f"{shape}, {payload_bytes} B"


def run(plan: Plan) -> None:
    if not plan.tools.h2load:
        return
    with ExitStack() as stack:
        contestants = _start_contestants(plan, stack)
        requests = {
            (server, payload): prepare_request(plan, server, "publish", payload)
            for server in contestants
            for payload in PAYLOADS
        }
        for server in contestants:
            plan.say(f"warming up {server.name}")
            measure(server, requests[server, PAYLOADS[-1]], SHAPES[-1], WARM_UP_SECONDS)
        plan.interleave(
            SCENARIO,
            [
                Measurement(
                    case_name(shape, payload),
                    server.name,
                    partial(measure, server, requests[server, payload], shape, plan.seconds),
                )
                for payload in PAYLOADS
                for shape in SHAPES
                for server in contestants
            ],
        )


def prepare_request(plan: Plan, server: Server, purpose: str, payload_bytes: int) -> PublishRequest:
    """Create the producer, where the contestant is a real broker, and write the request it will send."""
    topic = f"/default/bench_{purpose}_{payload_bytes}"
    producer_id = 1 << 40
    if server.is_broker:
        with connected(server.address) as api:
            producer_id = api.create_producer(topic, "bench", reliable=False)
    return PublishRequest.write(
        plan.scratch, producer_id=producer_id, topic=topic, payload_bytes=payload_bytes
    )


def measure(server: Server, request: PublishRequest, shape: Shape, seconds: float) -> Sample:
    meter = Meter(server)
    return meter.sample(publish(server.address, request, shape, seconds=seconds))


def _start_contestants(plan: Plan, stack: ExitStack) -> list[Server]:
    started = plan.start(stack, servers.running_broker(plan.scratch))
    if servers.compiled_modules():
        started += plan.start(stack, servers.running_broker(plan.scratch, name=servers.OURS_INTERPRETED))
    if plan.tools.grpc_go_server is not None:
        started += plan.start(stack, servers.running_grpc_go(plan.scratch, plan.tools.grpc_go_server))
    return started + plan.start(stack, servers.running_grpcio(plan.scratch))
