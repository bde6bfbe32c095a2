"""The client without async: its own loop in its own thread, used from any other."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from scripted_broker import ScriptedBroker, fails, stays_silent

from pydanube.client import Batching, Position, Receipt, Rejected, Retries, Run, Timeout, blocking
from pydanube.client.errors import ErrorCode, QueueFull
from pydanube.protocol.native import frames

TOPIC = "/default/t"
QUICK = Retries(attempts_max=2, backoff=0.001, backoff_max=0.002)


@pytest.fixture
def far_broker() -> Iterator[ScriptedBroker]:
    """A scripted broker with a loop and a thread of its own."""
    loop = asyncio.new_event_loop()
    broker = ScriptedBroker()
    loop.run_until_complete(broker.start())
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield broker
    asyncio.run_coroutine_threadsafe(broker.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.fixture
def client(far_broker: ScriptedBroker) -> Iterator[blocking.Client]:
    with blocking.connect(far_broker.url, timeout=5, retries=QUICK) as client:
        yield client
    assert not [thread for thread in threading.enumerate() if thread.name == "danube-client"]


def test_publish_and_consume(client: blocking.Client, far_broker: ScriptedBroker) -> None:
    with client.producer(TOPIC, name="shop") as producer:
        assert producer.send(b"0", key="k") == Receipt(TOPIC, 0)
        pending = [producer.send_nowait(b"%d" % n) for n in range(1, 50)]
        assert [one.result().offset for one in pending] == list(range(1, 50))
        assert producer.send_many([b"50", b"51"]) == [Run(TOPIC, 50, 2)]
        assert (producer.last_sequence, producer.partitions, producer.name) == (52, [TOPIC], "shop")
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        received = []
        for message in consumer:
            received.append(message.payload)
            consumer.ack(message)
            if len(received) == 50:
                break
        received.append(consumer.receive(timeout=5).payload)
        consumer.seek(Position.offset(51))
        assert consumer.receive().offset == 51
        with pytest.raises(Timeout):
            consumer.receive(timeout=0.01)
        consumer.nack([message], delay=1)
    assert received == [b"%d" % n for n in range(51)]
    assert client.partitions(TOPIC) == [TOPIC]
    assert client.lookup(TOPIC).address.port == far_broker.port


def test_acks_reach_the_broker(client: blocking.Client, far_broker: ScriptedBroker) -> None:
    with client.producer(TOPIC) as producer:
        producer.send_many([b"x"] * 10)
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        messages = [consumer.receive() for _ in range(10)]
        consumer.ack(iter(messages[:3]), confirm=True)
        assert far_broker.topic(TOPIC).acked["s"] == {0, 1, 2}
        consumer.ack(messages[3:])
        with pytest.raises(Rejected, match="did not come from batches"):
            consumer.ack(pa.table({"offset": [1]}))
    assert far_broker.topic(TOPIC).acked["s"] == set(range(10))


def test_batches_and_readers(client: blocking.Client) -> None:
    with client.producer(TOPIC) as producer:
        producer.send_many([b"a", b"b"])
    with client.reader(TOPIC, end="latest") as reader:
        assert [message.payload for message in reader] == [b"a", b"b"]
        with pytest.raises(Timeout, match="no more messages"):
            reader.receive()
    with client.reader(TOPIC, end="latest") as reader:
        assert [batch.num_rows for batch in reader.batches()] == [2]
    with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        assert next(iter(consumer.batches())).num_rows == 2


def test_a_failure_nobody_waits_for_is_told_by_flush(
    client: blocking.Client, far_broker: ScriptedBroker
) -> None:
    with client.producer(TOPIC) as producer:
        producer.send_nowait(b"", attributes={"x-ttl": "1"})
        with pytest.raises(Rejected, match="pass ttl="):
            producer.flush()
        far_broker.script(frames.PUBLISH, fails(ErrorCode.BATCH_INVALID, "no good"))
        pending = producer.send_nowait(b"x")
        with pytest.raises(Rejected, match="no good"):
            pending.result()


def test_a_full_queue_says_so(client: blocking.Client, far_broker: ScriptedBroker) -> None:
    far_broker.script(frames.PUBLISH, stays_silent)
    with client.producer(TOPIC, max_pending_bytes=10_000, batching=Batching(max_messages=1)) as producer:
        for _ in range(3):
            producer.send_nowait(bytes(3000))
        with pytest.raises(QueueFull):
            producer.send_nowait(bytes(3000))
        asyncio.run_coroutine_threadsafe(far_broker.received(frames.PUBLISH), far_broker.loop).result()
        far_broker.loop.call_soon_threadsafe(far_broker.drop_all)
        producer.ready()
        producer.send_nowait(bytes(3000)).result()
    assert far_broker.topic(TOPIC).next_offset == 4


def test_many_threads_share_a_producer(client: blocking.Client, far_broker: ScriptedBroker) -> None:
    with client.producer(TOPIC, max_pending_bytes=4096) as producer, ThreadPoolExecutor(4) as pool:
        receipts = list(pool.map(lambda n: producer.send(b"%d" % n), range(200)))
    assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(200))
    assert sorted(far_broker.topic(TOPIC).payloads()) == sorted(b"%d" % n for n in range(200))


def test_a_broker_that_is_not_there_leaves_no_thread(far_broker: ScriptedBroker) -> None:
    far_broker.script(frames.HELLO, fails(ErrorCode.ARGUMENT_INVALID, "who are you"))
    with pytest.raises(Rejected, match="who are you"), blocking.connect(far_broker.url):
        pass
    assert not [thread for thread in threading.enumerate() if thread.name == "danube-client"]


def test_a_closed_client_says_so(far_broker: ScriptedBroker) -> None:
    with blocking.connect(far_broker.url) as client, client.producer(TOPIC) as producer:
        pass
    with pytest.raises(Rejected, match="the client is closed"):
        producer.send(b"x")
