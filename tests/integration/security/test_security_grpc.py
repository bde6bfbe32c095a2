"""gRPC callers of a secured broker: who they are, what they may, and when that ends."""

from broker_harness.running_broker import RunningBroker
from broker_harness.wire_client import Status, refused

TOPIC = "/shop/orders"


async def test_a_caller_without_a_token_is_asked_who_they_are(secured: RunningBroker, realm) -> None:
    client = secured.client(realm.credentials())
    with refused(Status.UNAUTHENTICATED, "send a token"):
        await client.lookup(TOPIC)
    with refused(Status.UNAUTHENTICATED):
        await client.health(0, 1)


async def test_the_super_admin_may_do_everything(secured: RunningBroker, realm) -> None:
    client = secured.client(realm.credentials(realm.token("admin")))
    producer = await client.create_producer("/default/t")
    stream = await client.consume("/default/t")
    await producer.send("hello")
    assert await stream.take_acked(1) == ["hello"]
