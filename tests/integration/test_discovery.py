"""Lookup answers (data-plane spec, §1.2 and §6.1), and the storage catalogue (§15)."""

from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import Status, WireClient, refused

from pydanube.protocol import danube_pb2 as pb

CONNECT = pb.TopicLookupResponse.Connect


async def test_a_served_topic_is_answered_with_connect_and_dialable_urls(broker: RunningBroker) -> None:
    client = broker.client()
    await client.create_producer("/default/topic")
    found = await client.lookup("/default/topic")
    assert found.response_type == CONNECT
    assert found.connect_url == found.broker_url == f"http://{broker.address}"
    assert not found.proxy


async def test_lookup_wants_the_whole_name(client: WireClient) -> None:
    await client.create_producer("/default/foobar")
    await client.create_producer("/default/base-part-0")
    for name in (
        "/default/foo",
        "/default/foobarx",
        "/system/foobar",
        "/default/base",
        "/default/base-part-1",
    ):
        with refused(Status.NOT_FOUND):
            await client.lookup(name)


async def test_behind_a_proxy_both_urls_and_the_flag_are_given(start_broker: StartBroker) -> None:
    listeners = {"broker_url": "http://broker-1:6650", "connect_url": "http://proxy.example:80"}
    client = (await start_broker(broker={"advertised_listeners": listeners})).client()
    await client.create_producer("/default/topic")
    found = await client.lookup("/default/topic")
    assert (found.broker_url, found.connect_url, found.proxy) == (*listeners.values(), True)


async def test_the_catalogue_of_local_storage_is_empty_with_and_without_slash(client: WireClient) -> None:
    await client.create_producer("/default/topic")
    for topic in ("/default/topic", "default/topic", "/default/unknown", "nowhere/unknown"):
        request = pb.ListSegmentDescriptorsRequest(topic=topic)
        answer = await client.call("/danube.StorageService/ListSegmentDescriptors", request)
        assert list(answer.segments) == []
