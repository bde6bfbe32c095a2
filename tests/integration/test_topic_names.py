"""Topic names, partitions, and topics coming into being (data-plane spec, §4 and §5)."""

import asyncio

from broker_harness.running_broker import RunningBroker, StartBroker
from broker_harness.wire_client import Status, WireClient, refused

INVALID = [
    *("", "/", "//", "plain", "/default", "/default/", "//topic", "default/topic", "a/b/c", "/a/b/c"),
    *("/default/a.b", "/default/a:b", "/default/a b", "/default/a\n", "/default/" + "x" * 300),
]


async def test_an_invalid_name_is_refused_by_every_call_that_takes_one(client: WireClient) -> None:
    for name in INVALID:
        for call in (client.create_producer, client.subscribe, client.lookup, client.partitions):
            with refused(Status.INVALID_ARGUMENT):
                await call(name)


async def test_letters_digits_underscore_and_dash_make_a_name(client: WireClient) -> None:
    for name in ("/default/a", "/system/a", "/default/A_b-9", "/default/größe", "/default/-"):
        await client.create_producer(name)
        assert await client.partitions(name) == [name]


async def test_a_partition_of_an_existing_plain_topic_conflicts(client: WireClient) -> None:
    await client.create_producer("/default/base")
    with refused(Status.ALREADY_EXISTS):
        await client.create_producer("/default/base-part-0")


async def test_a_plain_topic_beside_its_partitions_conflicts(client: WireClient) -> None:
    await client.create_producer("/default/base-part-3")
    with refused(Status.ALREADY_EXISTS):
        await client.create_producer("/default/base")


async def test_names_that_only_look_related_do_not_conflict(client: WireClient) -> None:
    names = [
        "foobar",
        "foo",
        "foo-part-",
        "foo-part-x",
        "foo-part-01",
        "foo-part-1-x",
        "f",
        "my-part-time-job",
        "my",
    ]
    for name in names:
        await client.create_producer(f"/default/{name}")
    assert await client.partitions("/default/foo") == ["/default/foo"]


async def test_partitions_are_listed_in_numeric_order_and_nothing_else_is(client: WireClient) -> None:
    for name in ("t-part-10", "t-part-2", "t-part-0", "t-part-x", "t2-part-1", "tt"):
        await client.create_producer(f"/default/{name}")
    assert await client.partitions("/default/t") == [
        "/default/t-part-0",
        "/default/t-part-2",
        "/default/t-part-10",
    ]


async def test_partitions_of_nothing_is_an_empty_list(client: WireClient) -> None:
    assert await client.partitions("/default/nothing") == []
    assert await client.partitions("/nowhere/nothing") == []


async def test_partitions_are_created_in_parallel(client: WireClient) -> None:
    names = [f"/default/parallel-part-{n}" for n in range(16)]
    await asyncio.gather(*(client.create_producer(name, f"p-{n}") for n, name in enumerate(names)))
    assert await client.partitions("/default/parallel") == names


async def test_a_creation_race_is_won_by_everybody(client: WireClient) -> None:
    producers = await asyncio.gather(*(client.create_producer("/default/race", f"p{n}") for n in range(8)))
    assert len({producer.id for producer in producers}) == 8


async def test_a_consumer_never_creates_a_topic(client: WireClient) -> None:
    with refused(Status.NOT_FOUND):
        await client.subscribe("/default/unknown")
    assert await client.partitions("/default/unknown") == []


async def test_without_auto_creation_a_producer_does_not_either(start_broker: StartBroker) -> None:
    client = (await start_broker(auto_create_topics=False)).client()
    with refused(Status.NOT_FOUND):
        await client.create_producer("/default/unknown")
    with refused(Status.NOT_FOUND):
        await client.subscribe("/default/unknown")


async def test_a_missing_namespace_is_not_found(client: WireClient) -> None:
    with refused(Status.NOT_FOUND, "nowhere"):
        await client.create_producer("/nowhere/topic")


async def test_bootstrap_namespaces_exist(start_broker: StartBroker) -> None:
    client = (await start_broker(bootstrap_namespaces=["shop"])).client()
    await client.create_producer("/shop/orders")


async def test_an_unknown_dispatch_strategy_is_invalid(client: WireClient) -> None:
    for strategy in (2, 7, -1):
        with refused(Status.INVALID_ARGUMENT):
            await client.create_producer("/default/new", dispatch_strategy=strategy)
    assert await client.partitions("/default/new") == []


async def test_every_topic_is_served_again_after_a_restart(broker: RunningBroker, client: WireClient) -> None:
    names = [f"/default/{kind}-{n}" for kind in ("reliable", "live") for n in range(3)]
    for name in names:
        await client.create_producer(name, reliable="reliable" in name)
    await broker.restart()
    client = broker.client()
    for name in names:
        assert (await client.lookup(name)).connect_url
        with refused(Status.FAILED_PRECONDITION):
            await client.create_producer(name, reliable="live" in name)
