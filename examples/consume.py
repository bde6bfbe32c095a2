"""Consume a subscription: acknowledge what is done, ask again for what failed.

python examples/consume.py danube://127.0.0.1:6650
"""

import asyncio
import sys

from pydanube.client import Message, connect

TOPIC = "/default/example-consume"


async def main(url: str) -> None:
    async with connect(url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"good", b"bad", b"good again"])

        async with client.consumer(
            TOPIC, subscription="billing", type="shared", start="earliest"
        ) as consumer:
            done = 0
            async for message in consumer:
                try:
                    handle(message)
                except ValueError as error:
                    await consumer.nack(message, delay=0.5, reason=str(error))
                    continue
                await consumer.ack(message)
                done += 1
                if done == 3:
                    break  # a real one goes on for ever


def handle(message: Message) -> None:
    """Fails at the first try of one message."""
    if message.payload == b"bad" and message.attempt == 1:
        print(f"offset {message.offset} failed")
        raise ValueError("not today")
    print(f"offset {message.offset} done at try {message.attempt}: {message.payload.decode()}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
