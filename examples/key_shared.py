"""Share the work by key: messages of one key go to one consumer, in order.

python examples/key_shared.py danube://127.0.0.1:6650
"""

import asyncio
import sys

from pydanube.client import Consumer, connect

TOPIC = "/default/example-keys"


async def main(url: str) -> None:
    async with (
        connect(url) as client,
        client.producer(TOPIC) as producer,
        client.consumer(TOPIC, subscription="work", type="key_shared", name="worker-1") as one,
        client.consumer(TOPIC, subscription="work", type="key_shared", name="worker-2") as two,
    ):
        for number in range(1000):
            producer.send_nowait(b"%d" % number, key=f"customer-{number % 20}")
        await producer.flush()

        first: list[str | None] = []
        second: list[str | None] = []
        workers = [asyncio.create_task(work(one, first)), asyncio.create_task(work(two, second))]
        while len(first) + len(second) < 1000:
            await asyncio.sleep(0.01)
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        print(f"1000 messages; {len(set(first) & set(second))} keys were seen by both workers")


async def work(consumer: Consumer, keys: list[str | None]) -> None:
    async for message in consumer:
        keys.append(message.key)
        await consumer.ack(message)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
