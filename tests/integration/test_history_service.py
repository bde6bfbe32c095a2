"""What the client port tells of stored messages, asked by the client that bulk readers use."""

import re

import pytest
from broker_harness.admin_client import AdminClient
from broker_harness.running_broker import RunningBroker

from pydanube.client import connect
from pydanube.client import history as client_history
from pydanube.history.segment_file import read_facts
from pydanube.kernel.errors import ErrorCode, Rejected


async def test_topics_and_partitions_that_store_messages_are_listed(broker: RunningBroker) -> None:
    async with connect(f"danube://{broker.address}") as client:
        async with client.producer("/default/b", partitions=2) as producer:
            await producer.send(b"1")
        async with client.producer("/default/a") as producer:
            await producer.send(b"1")
        async with client.producer("/default/fleeting", reliable=False) as producer:
            await producer.send(b"1")
        assert await client.history.topics("default") == [
            "/default/a",
            "/default/b-part-0",
            "/default/b-part-1",
        ]
        assert await client.history.topics("elsewhere") == []


async def test_storage_says_what_is_sealed_and_segments_can_be_fetched(broker: RunningBroker) -> None:
    async with (
        connect(f"danube://{broker.address}") as client,
        client.producer("/default/t") as producer,
    ):
        await producer.send_many([b"sealed"] * 10)
        async with AdminClient(broker.admin_address) as admin:
            await admin.call("Seal", topic="/default/t")
        await producer.send_many([b"fresh"] * 5)

        storage = await client.history.storage("/default/t")
        assert (storage.start_offset, storage.sealed_end, storage.next_offset) == (0, 10, 15)
        (segment,) = await client.history.segments("/default/t")
        assert (segment.start_offset, segment.end_offset, segment.payload_bytes) == (0, 9, 60)
        assert read_facts(segment.place).end_offset == 9
        data = await client.history.read("/default/t", segment.segment_id, 0, client_history.PART_BYTES)
        assert len(data) == segment.size
        assert await client.history.segments("/default/t", from_offset=10) == []


async def test_an_unknown_topic_is_told_by_its_code(broker: RunningBroker) -> None:
    async with connect(f"danube://{broker.address}") as client:
        with pytest.raises(Rejected, match=re.escape("topic /default/none not found")) as refused:
            await client.history.storage("/default/none")
        assert refused.value.code is ErrorCode.TOPIC_UNKNOWN
