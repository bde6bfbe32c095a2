"""Read a topic again, from any offset or moment, without a subscription.

python examples/replay.py danube://127.0.0.1:6650
"""

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from pydanube.client import Position, connect

TOPIC = "/default/example-replay"


async def main(url: str) -> None:
    async with connect(url) as client:
        async with client.producer(TOPIC) as producer:
            await producer.send_many([b"%d" % number for number in range(1000)])

        async with client.reader(TOPIC, start=Position.offset(990), end="latest") as reader:
            print([message.payload.decode() async for message in reader])

        an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
        async with client.reader(TOPIC, start=Position.timestamp(an_hour_ago), end="latest") as reader:
            rows = [batch.num_rows async for batch in reader.batches()]
            print(f"{sum(rows)} messages in the last hour")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
