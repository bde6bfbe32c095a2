"""`python -m bench.validation`: what checking a message against its topic's schema adds to the cost of a publish.

The broker's publish calls are timed in one process, without network and disk: a non-reliable topic nobody listens to.
All cases of one form take turns in every round, and the least CPU time of all rounds counts, for on a shared machine
everything else only adds. A case's own cost is what it takes beyond the same publish on a topic without schema.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import click
import structlog
from rich.console import Console
from rich.table import Table

from pydanube.broker.batches import prepare_for_batches
from pydanube.broker.broker import Broker
from pydanube.broker.sessions import Producer
from pydanube.broker.settings import BrokerSettings
from pydanube.entries.memory_disk import MemoryDisk
from pydanube.kernel.names import TopicName
from pydanube.log.journal import Journal
from pydanube.metadata import MemoryStore
from pydanube.protocol.danube_pb2 import MsgID, StreamMessage
from pydanube.protocol.messages import scan_publish
from pydanube.protocol.native_pb2 import BatchHead
from pydanube.schemas.format import SchemaKind
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import ValidationPolicy
from pydanube.server.process import SystemClock, SystemDice, tune_process

AIM_US: Final = 5.0
"""For the JSON document."""
BATCH_MESSAGES: Final = 100
"""As many as are checked within one turn of the loop."""

ORDER: Final = {
    "id": 123456,
    "name": "Ada Lovelace",
    "email": "ada@example.org",
    "items": [{"sku": f"A-{n}", "qty": n + 1, "price": 9.99} for n in range(4)],
    "total": 39.96,
    "note": "leave it at the neighbour's door if nobody is in",
}
JSON_PAYLOAD: Final = json.dumps(ORDER).encode()
JSON_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": {"type": "integer", "minimum": 0},
        "name": {"type": "string", "maxLength": 100},
        "email": {"type": "string"},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "sku": {"type": "string"},
                    "qty": {"type": "integer", "minimum": 1},
                    "price": {"type": "number"},
                },
                "required": ["sku", "qty"],
            },
        },
        "total": {"type": "number"},
    },
    "required": ["id", "name", "items"],
}
AVRO_SCHEMA: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"]},
    ],
}
# id 7, name, three tags, branch 1 with a note
AVRO_PAYLOAD: Final = b"\x0e\x18Ada Lovelace\x06\x02a\x02b\x02c\x00\x02\x40" + b"n" * 32
PROTO_SCHEMA: Final = (
    'syntax = "proto3"; message Order { int64 id = 1; string name = 2; repeated string tags = 3; }'
)
PROTO_PAYLOAD: Final = b"\x08\x07\x12\x0cAda Lovelace" + b"\x1a\x10" + b"t" * 16


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    kind: SchemaKind = SchemaKind.JSON_SCHEMA
    definition: bytes = b""
    payload: bytes = JSON_PAYLOAD
    policy: ValidationPolicy | None = ValidationPolicy.ENFORCE
    """None: the topic is bound to no subject; messages name a schema all the same."""
    validates_payloads: bool = True


_JSON: Final = json.dumps(JSON_SCHEMA).encode()
CASES: Final = (
    Case("no subject", definition=_JSON, policy=None),
    Case("policy none", definition=_JSON, policy=ValidationPolicy.NONE),
    Case("schema named, payload unseen", definition=_JSON, validates_payloads=False),
    Case("JSON Schema", definition=_JSON),
    Case("Avro", SchemaKind.AVRO, json.dumps(AVRO_SCHEMA).encode(), AVRO_PAYLOAD),
    Case("Protobuf", SchemaKind.PROTOBUF, PROTO_SCHEMA.encode(), PROTO_PAYLOAD),
    Case("string", SchemaKind.STRING),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Microseconds of CPU a message."""

    case: str
    payload_bytes: int
    row_us: float
    row_added_us: float
    batch_us: float
    batch_added_us: float


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes one message or one batch over and over."""

    row: Callable[[], None]
    batch: Callable[[], None]


@click.command(context_settings={"show_default": True})
@click.option("--rounds", type=click.IntRange(1, 1000), default=40, help="Rounds all cases take turns in.")
@click.option("--messages", type=click.IntRange(100, 1_000_000), default=2_000, help="Messages a turn.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", help="What to print.")
def main(rounds: int, messages: int, output: str) -> None:
    """CPU time of a publish, with and without its schema checked."""
    tune_process()  # as a broker does
    logging.disable(logging.INFO)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    outcomes = asyncio.run(_measure(rounds, messages))
    if output == "json":
        click.echo(json.dumps([asdict(outcome) for outcome in outcomes], indent=2))
    else:
        Console().print(_table(outcomes))


async def _measure(rounds: int, messages: int) -> list[Outcome]:
    await prepare_for_batches()
    async with _broker() as broker:
        publishers = [await _publisher(broker, number, case) for number, case in enumerate(CASES)]
        rows, batches = [float("inf")] * len(CASES), [float("inf")] * len(CASES)
        for _ in range(rounds):
            for number, publisher in enumerate(publishers):
                rows[number] = min(rows[number], _timed(publisher.row, messages) / messages)
                turns = messages // BATCH_MESSAGES
                cost = _timed(publisher.batch, turns) / turns / BATCH_MESSAGES
                batches[number] = min(batches[number], cost)
    return [
        Outcome(case.name, len(case.payload), row, row - rows[0], batch, batch - batches[0])
        for case, row, batch in zip(CASES, rows, batches, strict=True)
    ]


@asynccontextmanager
async def _broker() -> AsyncIterator[Broker]:
    clock = SystemClock()
    store = MemoryStore(clock)
    journal = await Journal.open(Path("/journal"), metadata=store, clock=clock, disk=MemoryDisk())
    broker = Broker(
        settings=BrokerSettings(),
        store=store,
        journal=journal,
        clock=clock,
        dice=SystemDice(),
        registry=SchemaRegistry(store, clock),
    )
    await broker.start()
    yield broker
    await broker.stop()
    await journal.close()
    await store.close()


async def _publisher(broker: Broker, number: int, case: Case) -> Publisher:
    """A producer of a topic of its own, whose schema is in memory."""
    from pydanube.protocol.native import arrow  # noqa: PLC0415 - loaded beside the loop

    name = TopicName("default", f"case-{number}")
    producer = await broker.create_producer(topic_name=str(name), producer_name="bench", dispatch=0)
    schemas = broker.schemas
    schema_id = (await schemas.registry.register(str(number), case.kind, case.definition)).schema_id
    if case.policy is not None:
        await schemas.configure(name, str(number), case.policy, validate_payloads=case.validates_payloads)
        await schemas.registry.loaded.load(schema_id, 1)
    body = _row(producer, case.payload, schema_id)
    head = BatchHead(
        producer_id=producer.id,
        producer_name="bench",
        publish_time=1,
        schema_id=schema_id,
        schema_version=1,
    )
    batch = arrow.encode_payloads([case.payload] * BATCH_MESSAGES, head)

    def publish_row() -> None:
        broker.publish(scan_publish(body), body, _done)

    def publish_batch() -> None:
        broker.publish_entry(producer, 0, 0, batch, _taken, _done)

    publish_row()
    publish_batch()
    return Publisher(publish_row, publish_batch)


def _row(producer: Producer, payload: bytes, schema_id: int) -> bytes:
    return StreamMessage(
        msg_id=MsgID(producer_id=producer.id, topic_name=producer.topic.text),
        payload=payload,
        publish_time=1,
        producer_name="bench",
        schema_id=schema_id,
        schema_version=1,
    ).SerializeToString()


def _done(error: BaseException | None) -> None:
    assert error is None, error


def _taken(offset: int, count: int) -> None:
    pass


def _timed(work: Callable[[], None], times: int) -> float:
    """Microseconds of CPU."""
    begin = time.process_time_ns()
    for _ in range(times):
        work()
    return (time.process_time_ns() - begin) / 1_000


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="CPU of a publish, µs a message")
    for heading in ("", "payload", "row", "added", f"batch of {BATCH_MESSAGES}", "added"):
        table.add_column(heading, justify="right")
    for outcome in outcomes:
        missed = max(outcome.row_added_us, outcome.batch_added_us) > AIM_US
        table.add_row(
            outcome.case,
            f"{outcome.payload_bytes} B",
            f"{outcome.row_us:.2f}",
            f"{outcome.row_added_us:+.2f}",
            f"{outcome.batch_us:.2f}",
            f"{outcome.batch_added_us:+.2f}",
            style="yellow" if missed else "",
        )
    return table


if __name__ == "__main__":
    main()
