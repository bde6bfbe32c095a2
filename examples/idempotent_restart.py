"""Copy a file line by line, be stopped anywhere, start again: every line is stored exactly once.

The broker remembers how many messages it has of a producer's name, so the program asks where to go on.

    python examples/idempotent_restart.py danube://127.0.0.1:6650
"""

import asyncio
import sys

from pydanube.client import Batching, connect

TOPIC = "/default/example-restart"
LINES = [b"line %d" % number for number in range(1000)]


async def main(url: str) -> None:
    await copy(url, stop_after=300)  # stopped in the middle, perhaps with messages on their way
    await copy(url)
    async with connect(url) as client, client.reader(TOPIC, end="latest") as reader:
        stored = [message.payload async for message in reader]
    print(f"{len(stored)} lines stored, each exactly once: {stored == LINES}")


async def copy(url: str, stop_after: int | None = None) -> None:
    async with (
        connect(url) as client,
        client.producer(TOPIC, name="copier", batching=Batching(max_messages=50)) as producer,
    ):
        done = producer.last_sequence
        print(f"{done} lines are there already")
        for line in LINES[done:stop_after]:
            producer.send_nowait(line)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
