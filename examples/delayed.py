"""Deliver messages later, or not after a while.

python examples/delayed.py danube://127.0.0.1:6650
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from pydanube.client import connect

TOPIC = "/default/example-delayed"


async def main(url: str) -> None:
    async with connect(url) as client, client.producer(TOPIC) as producer:
        await producer.send(b"in a second", deliver_after=timedelta(seconds=1))
        await producer.send(b"in two seconds", deliver_at=datetime.now(UTC) + timedelta(seconds=2))
        await producer.send(b"now, or never after a minute", ttl=60.0)

        async with client.consumer(TOPIC, subscription="reminders", start="earliest") as consumer:
            for _ in range(3):
                message = await consumer.receive(timeout=30)
                print(message.payload.decode())
                await consumer.ack(message)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
