"""The Python client and a whole broker: what goes in comes out, in every shape, and through restarts."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow as pa
import pytest
import trustme
from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.tokens import TRUSTED, root_token

from pydanube.client import (
    TLS,
    Batching,
    Client,
    Conflict,
    ErrorCode,
    Message,
    Position,
    Receipt,
    Rejected,
    Retries,
    Run,
    Timeout,
    connect,
)
from pydanube.client import grpc as grpc_client

TOPIC = "/default/orders"
PATIENT = Retries(attempts_max=100, backoff=0.01, backoff_max=0.1)


@asynccontextmanager
async def client_of(broker: RunningBroker) -> AsyncIterator[Client]:
    async with connect(f"danube://{broker.address}", timeout=10, retries=PATIENT) as client:
        yield client


async def read_all(client: Client, topic: str = TOPIC) -> list[Message]:
    async with client.reader(topic, end="latest") as reader:
        return [message async for message in reader]


def described(message: Message) -> dict[str, Any]:
    return {
        "payload": message.payload,
        "key": message.key,
        "attributes": message.attributes,
        "publish_time_ms": message.publish_time_ms,
        "schema_id": message.schema_id,
        "schema_version": message.schema_version,
        "compaction_key": message.compaction_key,
        "producer_name": message.producer_name,
    }


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
async def test_every_field_survives_in_rows_and_in_batches(broker: RunningBroker, compression: Any) -> None:
    fields: list[dict[str, Any]] = [
        {},
        {"key": "k", "attributes": {"a": "b", "ü": "ö"}},
        {"publish_time": datetime(2024, 5, 6, tzinfo=UTC), "schema_id": 3, "schema_version": 4},
        {"compaction_key": "c", "attributes": {"a": ""}},
        {"key": "", "schema_id": 2**64 - 1},
    ]
    async with client_of(broker) as client:
        batching = Batching(compression=compression)
        async with client.producer(TOPIC, name="shop", batching=batching) as producer:
            for number, extra in enumerate(fields):
                await producer.send(b"%d" % number * 50, **extra)
            pending = [producer.send_nowait(b"%d" % n * 50, **extra) for n, extra in enumerate(fields)]
            assert [await one for one in pending] == [Receipt(TOPIC, 5 + n) for n in range(5)]
        messages = await read_all(client)
    rows, batch = [described(m) for m in messages[:5]], [described(m) for m in messages[5:]]
    for row, batched in zip(rows, batch, strict=True):
        for name in ("payload", "key", "attributes", "schema_id", "schema_version", "compaction_key"):
            assert row[name] == batched[name]
    assert rows[2]["publish_time_ms"] == batch[2]["publish_time_ms"] == 1_714_953_600_000
    assert rows[3]["compaction_key"] == "c"
    assert [m.offset for m in messages] == list(range(10))
    assert {m.producer_name for m in messages} == {"shop"}


async def test_both_protocols_serve_one_topic(broker: RunningBroker) -> None:
    async with (
        client_of(broker) as native,
        grpc_client.Client(f"http://{broker.address}") as grpc,
        native.producer(TOPIC) as producer,
        grpc_client.Consumer(grpc, TOPIC, name="desk", subscription="old") as old,
        native.consumer(TOPIC, subscription="new") as new,
        grpc_client.Producer(grpc, TOPIC, name="till", reliable=True) as till,
    ):
        await producer.send_many([b"n%d" % n for n in range(5)], key="k", attributes={"a": "b"})
        await till.send(b"g0", routing_key="g", attributes={"c": "d"})
        received = [await old.receive() for _ in range(6)]
        assert [m.payload for m in received] == [b"n0", b"n1", b"n2", b"n3", b"n4", b"g0"]
        assert [(m.offset, m.routing_key, m.attributes) for m in received[4:]] == [
            (4, "k", {"a": "b"}),
            (5, "g", {"c": "d"}),
        ]
        for message in received:
            await old.ack(message)
        messages = [await new.receive(timeout=10) for _ in range(6)]
        assert [(m.payload, m.offset, m.key) for m in messages[4:]] == [(b"n4", 4, "k"), (b"g0", 5, "g")]
        assert messages[5].producer_name == "till"


async def test_restarts_in_the_middle_lose_and_double_nothing(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        batching = Batching(max_messages=20, linger_ms=1)
        async with client.producer(TOPIC, name="shop", batching=batching) as producer:

            async def publish() -> None:
                for n in range(2000):
                    producer.send_nowait(b"%d" % n)
                    if n % 10 == 0:
                        await asyncio.sleep(0)
                await producer.flush()

            publishing = asyncio.create_task(publish())
            for _ in range(2):
                await asyncio.sleep(0.01)
                await broker.restart()
            await publishing
            assert producer.last_sequence == 2000
        messages = await read_all(client)
    assert [m.payload for m in messages] == [b"%d" % n for n in range(2000)]


async def test_a_consumer_outlives_a_restart(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"%d" % n for n in range(100)])
        async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            seen = set()
            for _ in range(40):
                message = await consumer.receive(timeout=10)
                seen.add(message.offset)
                await consumer.ack(message)
            await consumer.ack((), confirm=True)
            await broker.restart()
            while len(seen) < 100:
                message = await consumer.receive(timeout=10)
                seen.add(message.offset)
                await consumer.ack(message)


async def test_acked_messages_do_not_come_again(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"%d" % n for n in range(10)])
        async with client.consumer(TOPIC, subscription="s", type="exclusive", start="earliest") as consumer:
            messages = [await consumer.receive(timeout=10) for _ in range(10)]
            await consumer.ack([m for m in messages if m.offset != 4], confirm=True)
        async with client.consumer(TOPIC, subscription="s", type="exclusive") as consumer:
            again = await consumer.receive(timeout=10)
            assert (again.offset, again.attempt) == (4, 2)
            with pytest.raises(Timeout):
                await consumer.receive(timeout=0.05)


async def test_a_nacked_message_comes_again_after_its_delay(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"x")
        async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            first = await consumer.receive(timeout=10)
            await consumer.nack(first, delay=0.05, reason="later")
            again = await consumer.receive(timeout=10)
            assert (again.offset, again.attempt) == (0, 2)


async def test_tables_go_in_and_come_out_as_columns(broker: RunningBroker) -> None:
    table = pa.table(
        {
            "id": pa.array([b"%d" % n for n in range(5000)], pa.large_binary()),
            "customer": [f"c{n % 7}" for n in range(5000)],
            "attributes": pa.array([[("n", str(n))] for n in range(5000)], pa.map_(pa.utf8(), pa.utf8())),
        }
    )
    async with client_of(broker) as client:
        async with client.producer(TOPIC) as producer:
            runs = await producer.send_table(table, payload="id", key="customer")
            assert sum(run.messages for run in runs) == 5000
        async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            batches = []
            async for batch in consumer.batches():
                batches.append(batch)
                await consumer.ack(batch)
                if sum(b.num_rows for b in batches) == 5000:
                    break
            await consumer.ack((), confirm=True)
        received = pa.Table.from_batches([b.replace_schema_metadata() for b in batches])
        assert received.column("payload").to_pylist() == table.column("id").to_pylist()
        assert received.column("routing_key").to_pylist() == table.column("customer").to_pylist()
        assert received.column("attributes").to_pylist()[4999] == [("n", "4999")]
        async with client.consumer(TOPIC, subscription="s") as consumer:
            with pytest.raises(Timeout):
                await consumer.receive(timeout=0.05)


@pytest.mark.parametrize("make", [pandas.DataFrame, polars.DataFrame])
async def test_frames_of_pandas_and_polars_go_in_as_they_are(
    broker: RunningBroker, make: Callable[[dict[str, list[Any]]], Any]
) -> None:
    frame = make({"payload": [b"one", b"two", b"three"], "customer": ["a", None, "c"]})
    async with client_of(broker) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_table(frame, key="customer")
        async with client.reader(TOPIC, start="earliest", end="latest") as reader:
            received = [(message.payload, message.key) async for message in reader]
    assert received == [(b"one", "a"), (b"two", None), (b"three", "c")]


@pytest.mark.parametrize(
    ("table", "options", "reason"),
    [
        ({"a": [1]}, {}, "a dict is no table"),
        (pa.table({"a": [b"x"]}), {"payload": "a", "key": "b"}, "no column 'b'"),
        (pa.table({"payload": [[1]]}), {}, "cannot be sent as payload"),
    ],
)
async def test_a_table_that_holds_no_messages_is_refused(
    broker: RunningBroker, table: Any, options: dict[str, str], reason: str
) -> None:
    async with client_of(broker) as client, client.producer(TOPIC) as producer:
        with pytest.raises(Rejected, match=reason):
            await producer.send_table(table, **options)


async def test_partitions_keep_keys_together(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        async with client.producer(TOPIC, partitions=3) as producer:
            assert producer.partitions == [f"{TOPIC}-part-{n}" for n in range(3)]
            for n in range(30):
                producer.send_nowait(b"%d" % n, key=f"k{n % 5}")
            table = pa.table({"payload": [b"t"] * 10, "routing_key": [f"k{n % 5}" for n in range(10)]})
            await producer.send_table(table)
            await producer.flush()
        assert await client.partitions(TOPIC) == [f"{TOPIC}-part-{n}" for n in range(3)]
        messages = await read_all(client)
        async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            consumed = [await consumer.receive(timeout=10) for _ in range(40)]
            await consumer.ack(consumed, confirm=True)
    assert len(messages) == 40
    homes = {(message.key, message.topic) for message in messages}
    assert len(homes) == 5
    for key in {message.key for message in messages}:
        mine = [int(m.payload) for m in messages if m.key == key and m.payload != b"t"]
        assert mine == sorted(mine)


async def test_seeking_goes_back_and_forth(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"%d" % n for n in range(100)])
        async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            for _ in range(50):
                await consumer.ack(await consumer.receive(timeout=10))
            for position, offset in [
                (Position.offset(10), 10),
                ("earliest", 0),
                (Position.timestamp(datetime.now(UTC) - timedelta(hours=1)), 0),
                (Position.offset(99), 99),
            ]:
                await consumer.seek(position)  # type: ignore[arg-type]
                assert (await consumer.receive(timeout=10)).offset == offset
            for _ in range(20):  # credit survives any number of seeks
                await consumer.seek("earliest")
                assert (await consumer.receive(timeout=10)).offset == 0


async def test_delayed_messages_wait_and_readers_do_not(broker: RunningBroker) -> None:
    async with client_of(broker) as client, client_of(broker) as other:
        async with client.producer(TOPIC) as producer:
            await producer.send(b"later", deliver_after=timedelta(hours=1))
            await producer.send_many([b"later too"] * 2, deliver_at=datetime.now(UTC) + timedelta(hours=1))
            await producer.send(b"now")
        async with other.consumer(TOPIC, subscription="s", start="earliest") as consumer:
            assert (await consumer.receive(timeout=10)).payload == b"now"
        assert [m.payload for m in await read_all(client)] == [b"later", b"later too", b"later too", b"now"]


async def test_a_non_reliable_topic_has_no_offsets(broker: RunningBroker) -> None:
    async with (
        client_of(broker) as client,
        client.producer(TOPIC, reliable=False) as producer,
        client.consumer(TOPIC, subscription="s") as consumer,
    ):
        assert await producer.send(b"a") == Receipt(TOPIC, None)
        assert await producer.send_many([b"b", b"c"]) == [Run(TOPIC, None, 2)]
        messages = [await consumer.receive(timeout=10) for _ in range(3)]
        assert [(m.payload, m.offset) for m in messages] == [(b"a", None), (b"b", None), (b"c", None)]
        await consumer.ack(messages)


async def test_key_shared_consumers_share_by_key(broker: RunningBroker) -> None:
    async with (
        client_of(broker) as client,
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s", type="key_shared", name="one") as one,
        client.consumer(TOPIC, subscription="s", type="key_shared", name="two") as two,
    ):
        for n in range(200):
            producer.send_nowait(b"%d" % n, key=f"k{n % 20}")
        await producer.flush()
        seen: dict[str, list[Message]] = {"one": [], "two": []}

        async def take(consumer: Any, name: str) -> None:
            async for message in consumer:
                seen[name].append(message)
                await consumer.ack(message)

        tasks = [asyncio.create_task(take(one, "one")), asyncio.create_task(take(two, "two"))]
        async with asyncio.timeout(20):
            while sum(map(len, seen.values())) < 200:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    keys = {name: {message.key for message in messages} for name, messages in seen.items()}
    assert keys["one"]
    assert keys["two"]
    assert not keys["one"] & keys["two"]


async def test_exclusive_means_alone(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        async with client.producer(TOPIC, exclusive=True):
            with pytest.raises(Conflict) as caught:
                async with client.producer(TOPIC):
                    pass
            assert caught.value.code is ErrorCode.PRODUCER_EXCLUSIVE
        async with client.consumer(TOPIC, subscription="s", type="exclusive", name="a"):
            with pytest.raises(Rejected) as refused:
                async with client.consumer(TOPIC, subscription="s", type="exclusive", name="b"):
                    pass
            assert refused.value.code is ErrorCode.CONSUMER_EXCLUSIVE


async def test_a_consumer_of_the_same_name_takes_over_once(broker: RunningBroker) -> None:
    async with (
        client_of(broker) as client,
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="s", name="a") as older,
        client.consumer(TOPIC, subscription="s", name="a") as newer,
    ):
        with pytest.raises(Conflict, match="another consumer named a took over"):
            await older.receive(timeout=10)
        await producer.send(b"x")
        assert (await newer.receive(timeout=10)).payload == b"x"


async def test_messages_travel_encrypted_to_those_who_trust_the_certificate(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    files = {"cert_file": f"{tmp_path}/server.crt", "key_file": f"{tmp_path}/server.key"}
    broker = await start_broker(auth={"mode": "tls", "tls": files, **TRUSTED})
    url, tls = f"danubes://{broker.address}", TLS(ca=tmp_path / "ca.crt")
    async with connect(url, token=root_token(), tls=tls) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"secret"] * 1000)
        assert len(await read_all(client)) == 1000
    with pytest.raises(Rejected, match="its certificate is not trusted"):
        async with connect(f"danubes://{broker.address}"):
            pass
    with pytest.raises(Rejected, match="cannot be used"):
        connect(broker.address, tls=TLS(ca="nowhere.crt"))


async def test_a_topic_that_does_not_exist_is_named(broker: RunningBroker) -> None:
    async with client_of(broker) as client:
        with pytest.raises(Rejected, match="/default/nowhere"):
            async with client.consumer("/default/nowhere", subscription="s"):
                pass
        with pytest.raises(Rejected, match="invalid topic name"):
            async with client.producer("nowhere"):
                pass


async def test_a_large_message_travels_and_a_larger_is_refused(broker: RunningBroker) -> None:
    async with client_of(broker) as client, client.producer(TOPIC) as producer:
        assert (await producer.send(bytes(4_000_000))).offset == 0
        with pytest.raises(Rejected, match="exceeds"):
            await producer.send(bytes(5_000_000))
        assert len((await read_all(client))[0].payload) == 4_000_000
