"""Reading batches must not cost a program what it did not ask for."""

import subprocess
import sys

PROGRAM = """
import sys
from pydanube.protocol.native import arrow
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.payload_batch import encode_payload_batch
from pydanube.protocol.native_pb2 import BatchHead

head = BatchHead(producer_name="p", publish_time=5, routing_key="k", attributes={"a": "b"}, schema_id=1, ttl=7)
for each in (head, BatchHead(producer_name="q")):
    body = b"".join(encode_payload_batch([b"one", b"two"], each.SerializeToString()))
    batch = arrow.delivered_batch(Item(7, 1, 0, 2, 1, body), "/default/t")
    assert batch.column("payload").to_pylist() == [b"one", b"two"]
print("pandas" in sys.modules)
"""


MESSAGES = """
import sys
from types import SimpleNamespace
from pydanube.client.message import Unpacked
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.payload_batch import encode_payload_batch
from pydanube.protocol.native_pb2 import BatchHead

body = b"".join(encode_payload_batch([b"one", b"two"], BatchHead(producer_name="p").SerializeToString()))
feed = SimpleNamespace(topic="/default/t", generation=1)
assert [message.payload for message in Unpacked.batch(feed, Item(7, 1, 0, 2, 1, body)).messages] == [b"one", b"two"]
print("pyarrow" in sys.modules)
"""


def test_messages_are_read_without_loading_arrow() -> None:
    run = subprocess.run([sys.executable, "-c", MESSAGES], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_batches_are_read_without_loading_pandas() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
