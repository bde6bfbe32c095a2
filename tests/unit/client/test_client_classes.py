"""What applications may do with the client's classes, whether they run compiled or from source."""

import asyncio
import copy
import inspect
import pickle
import weakref

import pytest

from pydanube.client import Batching, Consumer, Producer, Reader, Receipt, Rejected, Run
from pydanube.client.address import Address
from pydanube.client.cluster import Cluster
from pydanube.client.connection import Connection, Dialling
from pydanube.client.options import ProducerOptions
from pydanube.client.retries import Retries


class OwnProducer(Producer):
    """As somebody might extend it."""

    def send_text(self, text: str) -> object:
        return self.send_nowait(text.encode())


def make_producer() -> OwnProducer:
    cluster = Cluster(Address.parse("broker"), Dialling(timeout=1.0), Retries())
    options = ProducerOptions(
        reliable=True, idempotent=True, exclusive=False, batching=Batching(), schema_subject=None
    )
    return OwnProducer(
        cluster, "/default/t", name="p", options=options, max_pending_bytes=1000, partitions=None
    )


@pytest.mark.parametrize(
    "value", [Batching(linger_ms=1), Receipt("/default/t", 7), Run("/default/t", None, 2)]
)
def test_plain_values_are_pickled_and_copied(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
    assert copy.copy(value) == value


def test_a_producer_can_be_extended() -> None:
    producer = make_producer()
    with pytest.raises(Rejected, match="is not open"):
        producer.send_text("a")
    assert weakref.ref(producer)() is producer


@pytest.mark.parametrize("method", [Producer.send, Producer.flush, Consumer.receive, Reader.open])
def test_coroutines_of_the_application_are_known_as_such(method: object) -> None:
    """Python warns of those nobody awaits, and tools tell them from other methods."""
    assert inspect.iscoroutinefunction(method)


async def test_any_event_loop_takes_the_connection_for_a_buffered_protocol() -> None:
    connection = Connection(Address.parse("broker"), Dialling(timeout=1.0), asyncio.get_running_loop())
    assert isinstance(connection, asyncio.BufferedProtocol)
