"""The same client for programs without an event loop.

python examples/blocking_client.py danube://127.0.0.1:6650
"""

import sys

from pydanube.client import blocking

TOPIC = "/default/example-blocking"


def main(url: str) -> None:
    with blocking.connect(url) as client:
        with client.producer(TOPIC) as producer:
            receipt = producer.send(b"one")
            print(f"stored at offset {receipt.offset}")
            for number in range(1000):
                producer.send_nowait(b"%d" % number)
            producer.flush()

        with client.consumer(TOPIC, subscription="billing", start="earliest") as consumer:
            done = 0
            for message in consumer:
                consumer.ack(message)
                done += 1
                if done == 1001:
                    break
        print(f"{done} messages done")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "danube://127.0.0.1:6650")
