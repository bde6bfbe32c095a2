"""Publish messages: one at a time, without waiting for each, and many in one call.

python examples/publish.py danube://127.0.0.1:6650
"""

import asyncio
import sys

from pydanube.client import Batching, connect


async def main(url: str) -> None:
    async with (
        connect(url) as client,
        client.producer("/default/example-publish", batching=Batching(compression="lz4")) as producer,
    ):
        # Waits until the message is on stable storage.
        receipt = await producer.send(b"one", key="customer-1", attributes={"kind": "order"})
        print(f"stored at offset {receipt.offset} of {receipt.topic}")

        # Does not wait: messages collect into batches, several of which are under way at a time.
        for number in range(10_000):
            producer.send_nowait(b"order %d" % number)
            if number % 1000 == 0:
                await producer.ready()  # leaves the broker time, if it needs some
        await producer.flush()  # raises if any of them failed

        # The quickest way for messages you have already.
        for run in await producer.send_many([b"a", b"b", b"c"], key="customer-2"):
            print(f"{run.messages} messages from offset {run.offset} on")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
