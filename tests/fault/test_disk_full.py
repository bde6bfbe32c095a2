"""A disk without space: publishing is refused by name, everything else goes on, nothing acknowledged is lost."""

import asyncio
import random
from pathlib import Path

from pydanube.protocol import danube_pb2 as pb
from tests.fault.broker_process import BrokerProcess
from tests.fault.clients import Consumer, Habits, Producer
from tests.fault.history import End, History, Order
from tests.fault.messages import Message
from tests.fault.small_disk import SmallDisk

PUBLISHES_MAX = 400
SECONDS_MAX = 30


async def test_a_full_disk_refuses_publishes_and_nothing_else(disk: SmallDisk, tmp_path: Path) -> None:
    history, dice = History(), random.Random(1)
    broker = BrokerProcess(tmp_path / "broker", data_dir=disk.data_dir, prefix=disk.prefix)
    topic = history.topic("/default/full")
    producer = Producer(
        broker.address,
        history,
        topic,
        "producer",
        habits=Habits(bytes_min=100_000, bytes_max=100_000),
        dice=dice,
    )
    subscription = history.subscribed(topic, "reader", Order.LOG)
    reader = Consumer(
        broker.address,
        history,
        subscription,
        "reader",
        dice,
        kind=pb.ConsumerRequest.SubscriptionType.Exclusive,
        ack_share=0.0,
    )

    async def read_up_to(fence: Message) -> None:
        async with asyncio.timeout(SECONDS_MAX):
            while history.missing(subscription, fence):
                await asyncio.sleep(0.02)
        history.judge(topic, fence)

    reading: asyncio.Task[None] | None = None
    try:
        history.broker_started()
        await broker.start()
        await producer.register()
        await reader.register()
        last, end = await producer.publish()
        assert end is End.OK

        disk.fill(broker)
        for _ in range(PUBLISHES_MAX):
            message, end = await producer.publish()
            if end is End.OK:
                last = message
            elif end is End.FAIL:
                break
        assert end is End.FAIL, "the disk never ran full"
        said = "no new journal file" if disk.heals else "the journal stopped after a failed write"
        assert producer.refusals[-1].startswith(f"UNAVAILABLE {said}")

        # Opened only now: everything comes from a broker that cannot write.
        reading = asyncio.create_task(reader.run())
        await read_up_to(last)

        disk.free(broker)
        if disk.heals:
            last = await producer.publish_surely(seconds=SECONDS_MAX)
            await read_up_to(last)

        await broker.kill()
        history.broker_ended()
        history.broker_started()
        await broker.start()
        await read_up_to(await producer.publish_surely(seconds=SECONDS_MAX))
        assert history.problems == [], broker.log_tail()
    finally:
        if reading is not None:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await producer.close()
        await reader.close()
        if broker.is_running:
            await broker.kill()
