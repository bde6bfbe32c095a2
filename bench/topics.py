"""`python -m bench.topics`: what a message costs the broker when the same load is spread over more topics.

One broker for each number of topics, all of them driven in turns by one connection: the same messages in the same
requests, the same number of requests on their way, only the topic of the next request changes. Producers are open, and
have sent once, before the clock starts. Counted is the CPU of the broker's process until it is at rest again, so what it
does behind the answers (closing journal files, writing runs) is in it.
"""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import median

import click
from rich.console import Console
from rich.table import Table

from bench.processes import await_quiet_disk
from bench.servers import Server, running_broker
from pydanube.bench.broker_cpu import await_quiet
from pydanube.bench.payloads import pool
from pydanube.client import Batching, connect
from pydanube.client import Producer as NativeProducer
from pydanube.client.grpc import Client as GrpcClient
from pydanube.client.grpc import Producer as GrpcProducer

TOPICS = (1, 10, 100, 1_000)
RATIO_AIM = 1.5
SIZE = 128
REQUESTS_UNDER_WAY = 64

Send = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    batch: int
    """Messages of one request; 0 for gRPC, which sends one message a call."""
    messages: int
    """Of one round: enough for several journal files, where requests are cheap enough."""

    @property
    def requests(self) -> int:
        return self.messages // max(self.batch, 1)


LOADS = (
    Load("native, 1,000 a request", 1_000, 2_000_000),
    Load("native, 100 a request", 100, 1_000_000),
    Load("native, 10 a request", 10, 200_000),
    Load("gRPC, one a call", 0, 10_000),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Medians over the rounds."""

    load: str
    topics: int
    cpu_us: float
    """Of the broker, a message."""
    ratio: float
    """Of the same round with one topic."""


@click.command(context_settings={"show_default": True})
@click.option("--rounds", type=click.IntRange(1, 50), default=3, help="Rounds, topics taking turns.")
@click.option("--only", help="Only loads whose name begins so, for example 'native, 1,000'.")
@click.option(
    "--scale", type=click.FloatRange(0.01, 100), default=1.0, help="More or fewer messages a round."
)
@click.option("--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
def main(rounds: int, only: str | None, scale: float, output: str) -> None:
    """CPU of the broker for a message, by the number of topics it may belong to."""
    progress = Console(stderr=True)
    outcomes: list[Outcome] = []
    for load in LOADS:
        if load.name.startswith(only or ""):
            sized = Load(load.name, load.batch, round(load.messages * scale))
            progress.print(load.name)
            outcomes += _measure(sized, rounds, progress)
    if output == "json":
        click.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        Console().print(_table(outcomes))


def _measure(load: Load, rounds: int, progress: Console) -> list[Outcome]:
    with _brokers() as brokers:
        costs = asyncio.run(_take_turns(load, brokers, rounds, progress))
    return [
        Outcome(
            load.name,
            topics,
            cpu_us=median(taken),
            ratio=median(many / one for many, one in zip(taken, costs[TOPICS[0]], strict=True)),
        )
        for topics, taken in costs.items()
    ]


@contextmanager
def _brokers() -> Iterator[dict[int, Server]]:
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        yield {topics: stack.enter_context(running_broker(scratch)) for topics in TOPICS}


async def _take_turns(
    load: Load, brokers: dict[int, Server], rounds: int, progress: Console
) -> dict[int, list[float]]:
    costs: dict[int, list[float]] = {topics: [] for topics in brokers}
    async with AsyncExitStack() as stack:
        sends: dict[int, Sequence[Send]] = {}
        for topics, broker in brokers.items():
            sends[topics] = await _open(stack, load, broker, topics)
            await _flood(sends[topics], topics)
        for number in range(rounds):
            for topics, broker in brokers.items():
                await _rest(broker)
                before = broker.usage().cpu_seconds
                await _flood(sends[topics], load.requests)
                await _rest(broker)
                cost = (broker.usage().cpu_seconds - before) / load.messages * 1e6
                progress.print(f"  round {number + 1}, {topics:>5,} topics: {cost:7.3f} µs a message")
                costs[topics].append(cost)
    return costs


async def _open(stack: AsyncExitStack, load: Load, broker: Server, topics: int) -> list[Send]:
    """Open a producer on each topic; each may be asked for one more request."""
    names = [f"/default/topic-{number}" for number in range(topics)]
    payloads = list(islice(cycle(pool(size=SIZE, seed=1)), max(load.batch, 1)))
    if not load.batch:
        client = GrpcClient(f"http://{broker.address}")
        stack.push_async_callback(client.close)
        rows = [GrpcProducer(client, name, name="bench", reliable=True) for name in names]
        return [_each(await stack.enter_async_context(producer), payloads[0]) for producer in rows]
    native = await stack.enter_async_context(connect(broker.address))
    batching = Batching(linger_ms=0, max_messages=load.batch, max_bytes=1 << 20)
    opening = [native.producer(name, name="bench", reliable=True, batching=batching) for name in names]
    return [_many(await stack.enter_async_context(producer), payloads) for producer in opening]


async def _flood(sends: Sequence[Send], requests: int) -> None:
    """Send so many requests, topics taking turns, as many at once as may be under way."""
    turns = islice(cycle(sends), requests)

    async def keep_one_under_way() -> None:
        for send in turns:
            await send()

    await asyncio.gather(*(keep_one_under_way() for _ in range(REQUESTS_UNDER_WAY)))


async def _rest(broker: Server) -> None:
    await asyncio.to_thread(await_quiet_disk, broker.pid, seconds_max=60.0)
    await asyncio.to_thread(await_quiet, broker.pid, seconds_max=60.0)


def _many(producer: NativeProducer, payloads: list[bytes]) -> Send:
    return lambda: producer.send_many(payloads)


def _each(producer: GrpcProducer, payload: bytes) -> Send:
    return lambda: producer.send(payload)


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title=f"CPU of the broker, messages of {SIZE} B")
    for heading in ("", "topics", "µs a message", "of one topic's"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        style = "" if outcome.ratio <= RATIO_AIM else "yellow"
        table.add_row(
            outcome.load,
            f"{outcome.topics:,}",
            f"{outcome.cpu_us:.2f}",
            f"{outcome.ratio:.2f}",
            style=style,
        )
    return table


if __name__ == "__main__":
    main()
