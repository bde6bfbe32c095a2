"""Spread a topic over partitions: keys choose their partition, messages without a key take turns.

python examples/partitions.py danube://127.0.0.1:6650
"""

import asyncio
import sys
from collections import Counter

from pydanube.client import connect

TOPIC = "/default/example-partitions"


async def main(url: str) -> None:
    async with connect(url) as client:
        async with client.producer(TOPIC, partitions=4) as producer:
            for number in range(1000):
                producer.send_nowait(b"%d" % number, key=f"customer-{number % 50}")
            await producer.flush()
        print(await client.partitions(TOPIC))

        async with client.reader(TOPIC, end="latest") as reader:
            counts = Counter([message.topic async for message in reader])
        for partition, count in sorted(counts.items()):
            print(f"{partition}: {count}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
