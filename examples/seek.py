"""Move a subscription: process the last messages again, or skip what is old.

python examples/seek.py danube://127.0.0.1:6650
"""

import asyncio
import sys

from pydanube.client import Position, connect

TOPIC = "/default/example-seek"


async def main(url: str) -> None:
    async with connect(url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"%d" % number for number in range(100)])

        async with client.consumer(TOPIC, subscription="billing", start="earliest") as consumer:
            for _ in range(100):
                await consumer.ack(await consumer.receive(timeout=30))
            print("all 100 done; once more from 97 on, for every consumer of the subscription")
            await consumer.seek(Position.offset(97))
            for _ in range(3):
                message = await consumer.receive(timeout=30)
                print(f"offset {message.offset} again")
                await consumer.ack(message)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
