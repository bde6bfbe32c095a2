"""One topic, two protocols: what a gRPC client publishes a native one consumes, and the other way round.

python examples/mixed.py danube://127.0.0.1:6650
"""

import asyncio
import sys

from pydanube.client import connect, grpc

TOPIC = "/default/example-mixed"


async def main(url: str) -> None:
    async with (
        connect(url) as native,
        grpc.Client(url.replace("danube://", "http://")) as old,
        native.producer(TOPIC) as native_producer,
        grpc.Producer(old, TOPIC, name="till", reliable=True) as grpc_producer,
        native.consumer(TOPIC, subscription="new") as native_consumer,
        grpc.Consumer(old, TOPIC, name="desk", subscription="old") as grpc_consumer,
    ):
        await native_producer.send_many([b"a batch", b"of two"])
        await grpc_producer.send(b"a single message")
        for _ in range(3):
            message = await native_consumer.receive(timeout=30)
            await native_consumer.ack(message)
            same = await grpc_consumer.receive()
            await grpc_consumer.ack(same)
            print(
                f"offset {message.offset} = {same.offset}: {message.payload.decode()} = {same.payload.decode()}"
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
