"""Publish a table: each row becomes a message, and no Python runs per row.

python examples/send_table.py danube://127.0.0.1:6650
"""

import asyncio
import sys

import pyarrow as pa

from pydanube.client import connect

TOPIC = "/default/example-table"


async def main(url: str) -> None:
    # A pandas or polars frame will do as well.
    table = pa.table(
        {
            "body": [b'{"order": %d}' % number for number in range(10_000)],
            "customer": [f"customer-{number % 100}" for number in range(10_000)],
        }
    )
    async with connect(url) as client, client.producer(TOPIC) as producer:
        runs = await producer.send_table(table, payload="body", key="customer")
        print(f"{sum(run.messages for run in runs)} messages in {len(runs)} batches")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
