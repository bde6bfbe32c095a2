"""Consume Arrow record batches: whole columns at a time, for Arrow, pandas or polars.

python examples/batches.py danube://127.0.0.1:6650
"""

import asyncio
import sys

import pyarrow as pa

from pydanube.client import connect

TOPIC = "/default/example-batches"


async def main(url: str) -> None:
    async with connect(url) as client:
        async with client.producer(TOPIC) as producer:
            for number in range(3000):
                producer.send_nowait(b"%d" % number, key=f"customer-{number % 3}")

        async with client.consumer(TOPIC, subscription="reports", start="earliest") as consumer:
            rows = 0
            async for batch in consumer.batches():
                table = pa.Table.from_batches([batch])
                per_customer = table.group_by("routing_key").aggregate([("payload", "count")])
                print(f"{batch.num_rows} rows from {batch.schema.metadata[b'topic'].decode()}")
                print(per_customer.sort_by("routing_key").to_pylist())
                # With pandas installed: frame = batch.to_pandas(). With polars: polars.from_arrow(batch).
                await consumer.ack(batch)
                rows += batch.num_rows
                if rows == 3000:
                    return


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650"))
