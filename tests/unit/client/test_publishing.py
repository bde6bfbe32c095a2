"""A producer against a broker that misbehaves: nothing is lost, doubled or reordered, and every outcome is told."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted_broker import (
    Peer,
    ScriptedBroker,
    ends_channel,
    fails,
    loses_answer,
    loses_request,
    stays_silent,
)

from pydanube.client import (
    Batching,
    Conflict,
    DanubeError,
    ErrorCode,
    OutcomeUnknown,
    PendingSend,
    Producer,
    QueueFull,
    Receipt,
    Rejected,
    Retries,
    Run,
    Timeout,
    Unavailable,
    connect,
)
from pydanube.client.address import Address
from pydanube.client.cluster import Cluster
from pydanube.client.connection import Dialling
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import encode_published
from pydanube.protocol.native.frames import Frame

TOPIC = "/default/t"
QUICK = Retries(attempts_max=6, backoff=0.001, backoff_max=0.002)
ONE_BY_ONE = Batching(max_messages=1)


@asynccontextmanager
async def producer_of(
    broker: ScriptedBroker, timeout: float = 5.0, **options: Any
) -> AsyncIterator[Producer]:
    async with (
        connect(broker.url, timeout=timeout, retries=options.pop("retries", QUICK)) as client,
        client.producer(TOPIC, name="shop", **options) as producer,
    ):
        yield producer


async def test_a_message_gets_its_offset(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as producer:
        assert await producer.send(b"one") == Receipt(TOPIC, 0)
        assert await producer.send(b"two", key="k") == Receipt(TOPIC, 1)
    assert broker.topic(TOPIC).payloads() == [b"one", b"two"]


async def test_messages_sent_together_share_a_batch(broker: ScriptedBroker) -> None:
    async with producer_of(broker, batching=Batching(max_messages=400)) as producer:
        pending = [producer.send_nowait(b"%d" % n, key=f"k{n % 3}") for n in range(1000)]
        receipts = [await one for one in pending]
    assert [receipt.offset for receipt in receipts] == list(range(1000))
    assert [entry.count for entry in broker.topic(TOPIC).entries] == [400, 400, 200]
    assert broker.topic(TOPIC).sequences == [(1, 400), (401, 400), (801, 200)]


async def test_while_one_publish_is_on_its_way_the_next_batch_collects(broker: ScriptedBroker) -> None:
    held: list[tuple[Peer, Frame]] = []
    broker.script(frames.PUBLISH, lambda peer, frame: held.append((peer, frame)))
    async with producer_of(broker, batching=Batching(linger_ms=0)) as producer:
        pending = [producer.send_nowait(b"first")]
        await broker.received(frames.PUBLISH)
        pending += [producer.send_nowait(b"%d" % n) for n in range(10)]
        peer, frame = held[0]
        peer.honestly(frame)
        assert [(await one).offset for one in pending] == list(range(11))
    assert [entry.count for entry in broker.topic(TOPIC).entries] == [1, 10]


async def test_messages_nobody_waits_for_linger_for_company(broker: ScriptedBroker) -> None:
    async with producer_of(broker, batching=Batching(linger_ms=60_000, max_bytes=1000)) as producer:
        producer.send_nowait(b"a")
        await broker_round_trip(producer)
        assert broker.count(frames.PUBLISH) == 0
        for _ in range(40):
            producer.send_nowait(bytes(10))
        await broker.received(frames.PUBLISH)
        await producer.flush()
    # Bytes count with what a message costs besides them.
    assert [entry.count for entry in broker.topic(TOPIC).entries] == [24, 17]


async def test_lingering_ends_by_itself(broker: ScriptedBroker) -> None:
    async with producer_of(broker, batching=Batching(linger_ms=1)) as producer:
        producer.send_nowait(b"a")
        await broker.received(frames.PUBLISH)


async def test_many_payloads_go_in_few_batches(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as producer:
        assert await producer.send_many([]) == []
        assert await producer.send_many([b"x"] * 1000) == [Run(TOPIC, 0, 1000)]
        runs = await producer.send_many([bytes(1000), bytearray(1000)] * 1000)
        assert [run.messages for run in runs] == [1000, 1000]
        with pytest.raises(Rejected, match="a payload is bytes"):
            await producer.send_many([b"x", "y"])  # type: ignore[list-item]
        assert producer.pending_bytes == 0
    assert broker.topic(TOPIC).next_offset == 3000


async def test_a_broker_that_does_not_read_fills_the_queue_and_no_more(broker: ScriptedBroker) -> None:
    async with producer_of(broker, max_pending_bytes=12 * 1024 * 1024) as producer:
        broker.peers[0].pause()
        sent = 0
        while producer.pending_bytes < 11_500_000:
            producer.send_nowait(b"%d" % sent + bytes(100_000))
            sent += 1
            await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            producer.send_nowait(bytes(2_000_000))
        assert sent * 100_000 < 12 * 1024 * 1024
        broker.peers[0].resume()
        await producer.flush()
    assert [int(payload.rstrip(bytes(1))) for payload in broker.topic(TOPIC).payloads()] == list(range(sent))


@pytest.mark.parametrize("fault", [loses_request, loses_answer, ends_channel(ErrorCode.TOPIC_MOVED)])
@pytest.mark.parametrize("nth", [0, 3, 9])
async def test_an_idempotent_producer_repeats_what_was_lost(
    broker: ScriptedBroker, fault: Any, nth: int
) -> None:
    broker.script(frames.PUBLISH, *[Peer.honestly] * nth, fault)
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        pending = [producer.send_nowait(b"%d" % n) for n in range(10)]
        assert [(await one).offset for one in pending] == list(range(10))
    assert broker.topic(TOPIC).payloads() == [b"%d" % n for n in range(10)]
    assert broker.topic(TOPIC).epochs == {"shop": 1}, "the session went on"


async def test_without_sequences_a_lost_answer_is_an_unknown_outcome(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, loses_answer)
    async with producer_of(broker, idempotent=False, batching=ONE_BY_ONE) as producer:
        with pytest.raises(OutcomeUnknown, match="whether the messages were taken is not known"):
            await producer.send(b"perhaps")
        await producer.send(b"surely")
    assert broker.topic(TOPIC).payloads() == [b"perhaps", b"surely"]


@pytest.mark.parametrize("code", [ErrorCode.OVERLOADED, ErrorCode.DISK_FULL, ErrorCode.TOPIC_MOVED])
async def test_what_is_refused_for_now_is_repeated_in_order(broker: ScriptedBroker, code: ErrorCode) -> None:
    broker.script(frames.PUBLISH, Peer.honestly, fails(code))
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        pending = [producer.send_nowait(b"%d" % n) for n in range(6)]
        assert [(await one).offset for one in pending] == list(range(6))
    assert broker.topic(TOPIC).payloads() == [b"%d" % n for n in range(6)]


async def test_what_is_refused_for_good_fails_alone_and_those_behind_close_the_gap(
    broker: ScriptedBroker,
) -> None:
    broker.script(frames.PUBLISH, Peer.honestly, fails(ErrorCode.MESSAGE_TOO_LARGE, "too large"))
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        pending = [producer.send_nowait(b"%d" % n) for n in range(4)]
        results = await asyncio.gather(*pending, return_exceptions=True)
        assert isinstance(results[1], Rejected)
        assert "too large" in str(results[1])
        assert [r.offset for r in results if isinstance(r, Receipt)] == [0, 1, 2]
        assert producer.last_sequence == 3
        assert producer.pending_bytes == 0
    assert broker.topic(TOPIC).payloads() == [b"0", b"2", b"3"]


async def test_a_gap_and_a_lost_connection_together_need_a_new_session(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, fails(ErrorCode.MESSAGE_TOO_LARGE), loses_request)
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        pending = [producer.send_nowait(b"%d" % n) for n in range(3)]
        results = await asyncio.gather(*pending, return_exceptions=True)
    assert isinstance(results[0], Rejected)
    assert broker.topic(TOPIC).payloads() == [b"1", b"2"]
    assert broker.topic(TOPIC).epochs == {"shop": 2}, "old numbers on the old connection are shut out"


async def test_a_newer_session_ends_the_older_for_good(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as older:
        await older.send(b"one")
        async with producer_of(broker) as newer:
            with pytest.raises(Conflict) as caught:
                await older.send(b"two")
            assert caught.value.code is ErrorCode.PRODUCER_FENCED
            with pytest.raises(Conflict):
                older.send_nowait(b"three")
            await newer.send(b"four")
    assert broker.topic(TOPIC).payloads() == [b"one", b"four"]


async def test_a_fenced_session_does_not_come_back_by_reconnecting(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as older:
        broker.topic(TOPIC).epochs["shop"] = 9
        broker.drop_all()
        await broker.received(frames.OPEN_PRODUCER, 2)
        with pytest.raises(Conflict):
            await older.send(b"one")
    assert broker.topic(TOPIC).payloads() == []


async def test_patience_ends_with_what_is_known(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, *[fails(ErrorCode.OVERLOADED, "too much")] * 50)
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        with pytest.raises(Unavailable, match="too much"):
            await producer.send(b"never taken")
    assert broker.count(frames.PUBLISH) == QUICK.attempts_max + 1


async def test_patience_ends_with_an_unknown_outcome_if_it_may_have_been_taken(
    broker: ScriptedBroker,
) -> None:
    broker.script(frames.PUBLISH, *[loses_request] * 50)
    async with producer_of(broker) as producer:
        with pytest.raises(OutcomeUnknown, match="may have been taken"):
            await producer.send(b"perhaps")


async def test_after_giving_up_sending_again_starts_over(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, *[loses_answer] * (QUICK.attempts_max + 1))
    async with producer_of(broker) as producer:
        with pytest.raises(OutcomeUnknown):
            await producer.send(b"perhaps")
        assert await producer.send(b"surely") == Receipt(TOPIC, 1)
    assert broker.topic(TOPIC).payloads() == [b"perhaps", b"surely"]


async def test_an_answer_that_does_not_come_is_asked_for_again(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, stays_silent)
    async with producer_of(broker, timeout=0.05) as producer:
        assert await producer.send(b"one") == Receipt(TOPIC, 0)
    assert broker.topic(TOPIC).payloads() == [b"one"]


@pytest.mark.parametrize(
    "lie",
    [
        lambda request: encode_published(request + 5, 1, 0),
        lambda request: encode_published(request, 2, 0),
        lambda request: b"short",
    ],
)
async def test_a_lying_broker_is_hung_up_on(broker: ScriptedBroker, lie: Any) -> None:
    broker.script(
        frames.PUBLISH, lambda peer, frame: peer.send(frames.PUBLISHED, frame.channel, 0, lie(frame.request))
    )
    async with producer_of(broker) as producer:
        assert await producer.send(b"one") == Receipt(TOPIC, 0)
    assert broker.count(frames.HELLO) == 2


async def test_a_broker_that_forgot_the_producer_is_followed(broker: ScriptedBroker) -> None:
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        for n in range(5):
            await producer.send(b"%d" % n)
        broker.topic(TOPIC).last_sequences["shop"] = 0
        await producer.send(b"5")
    assert broker.topic(TOPIC).payloads() == [b"%d" % n for n in range(6)]


async def test_a_restarted_producer_learns_where_it_was(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as producer:
        await producer.send_many([b"a", b"b", b"c"])
    async with producer_of(broker) as producer:
        assert producer.last_sequence == 3
        await producer.send(b"d")
    assert broker.topic(TOPIC).sequences == [(1, 3), (4, 1)]


async def test_a_moved_topic_is_found_at_its_new_broker(broker: ScriptedBroker) -> None:
    other = ScriptedBroker()
    await other.start()
    try:
        async with producer_of(broker, batching=ONE_BY_ONE) as producer:
            await producer.send(b"here")
            broker.redirects[TOPIC] = other.url
            broker.script(frames.PUBLISH, fails(ErrorCode.TOPIC_MOVED))
            other.topics[TOPIC] = broker.topics.pop(TOPIC)
            await producer.send(b"there")
        assert other.topic(TOPIC).payloads() == [b"here", b"there"]
    finally:
        await other.stop()


async def test_a_broker_said_to_speak_tls_is_not_spoken_to_without(broker: ScriptedBroker) -> None:
    other = ScriptedBroker()
    await other.start()
    try:
        broker.redirects[TOPIC] = other.url.replace("danube://", "danubes://")
        with pytest.raises(Unavailable, match="danubes://"):
            async with producer_of(broker, timeout=0.2, retries=Retries(attempts_max=0)):
                pass
        assert other.frames == []
    finally:
        await other.stop()


def test_a_client_that_came_over_tls_stays_on_tls() -> None:
    cluster = Cluster(Address("seed", 1, tls=True), Dialling(1.0), QUICK)
    assert cluster._as_safe(Address.parse("http://other:2")) == Address("other", 2, tls=True)


async def test_brokers_that_send_us_round_in_circles_are_left(broker: ScriptedBroker) -> None:
    broker.redirects[TOPIC] = broker.url
    with pytest.raises(Unavailable, match="each of which named another"):
        async with producer_of(broker, retries=Retries(attempts_max=0)):
            pass
    assert broker.count(frames.LOOKUP) == 6


async def test_opening_is_repeated_while_that_may_help(broker: ScriptedBroker) -> None:
    broker.script(frames.OPEN_PRODUCER, loses_request, fails(ErrorCode.TOPIC_DRAINING), loses_answer)
    async with producer_of(broker) as producer:
        assert await producer.send(b"one") == Receipt(TOPIC, 0)


async def test_opening_that_is_refused_says_why(broker: ScriptedBroker) -> None:
    broker.script(frames.OPEN_PRODUCER, fails(ErrorCode.DISPATCH_MISMATCH, "it is the other kind"))
    with pytest.raises(Conflict, match="opening a producer on /default/t: it is the other kind"):
        async with producer_of(broker):
            pass


async def test_a_full_queue_says_so_and_has_room_again_once_answers_come(broker: ScriptedBroker) -> None:
    held: list[tuple[Peer, Frame]] = []
    broker.script(frames.PUBLISH, lambda peer, frame: held.append((peer, frame)))
    async with producer_of(broker, max_pending_bytes=4096, batching=ONE_BY_ONE) as producer:
        first = producer.send_nowait(bytes(3000))
        with pytest.raises(QueueFull, match="await ready"):
            producer.send_nowait(bytes(3000))
        waiting = asyncio.create_task(producer.send(bytes(3000)))
        await broker.received(frames.PUBLISH)
        assert not waiting.done()
        peer, frame = held[0]
        peer.honestly(frame)
        assert (await first).offset == 0
        assert (await waiting).offset == 1
        await producer.ready()
        assert producer.pending_bytes == 0


async def test_those_who_wait_for_room_get_it_in_the_order_they_came(broker: ScriptedBroker) -> None:
    held: list[tuple[Peer, Frame]] = []
    broker.script(frames.PUBLISH, lambda peer, frame: held.append((peer, frame)))
    lists = [[b"%02d" % number] * 5 for number in range(40)]
    async with producer_of(broker, max_pending_bytes=400, batching=ONE_BY_ONE) as producer:
        sending = [asyncio.create_task(producer.send_many(payloads)) for payloads in lists]
        alone = asyncio.create_task(producer.send(b"last"))
        await broker.received(frames.PUBLISH)
        assert len(producer.budget._waiters) == 1, "the others stand in line: one answer wakes one"
        sending[3].cancel()
        held[0][0].honestly(held[0][1])
        await asyncio.gather(*sending, alone, return_exceptions=True)
    expected = [payload for number, payloads in enumerate(lists) if number != 3 for payload in payloads]
    assert broker.topic(TOPIC).payloads() == [*expected, b"last"]


async def test_a_message_larger_than_the_queue_goes_alone(broker: ScriptedBroker) -> None:
    async with producer_of(broker, max_pending_bytes=100) as producer:
        assert (await producer.send(bytes(5000))).offset == 0
        assert (await producer.send(bytes(5000))).offset == 1


async def test_no_more_is_on_its_way_than_the_broker_allows(broker: ScriptedBroker) -> None:
    broker.welcome.publish_window_bytes = 1000
    held: list[tuple[Peer, Frame]] = []
    broker.script(frames.PUBLISH, *[lambda peer, frame: held.append((peer, frame))] * 3)
    async with producer_of(broker, batching=ONE_BY_ONE) as producer:
        pending = [producer.send_nowait(bytes(400)) for _ in range(3)]
        await broker.received(frames.PUBLISH, 2)
        await asyncio.gather(*(broker_round_trip(producer) for _ in range(2)))
        assert len(held) == 2
        held[0][0].honestly(held[0][1])
        await broker.received(frames.PUBLISH, 3)
        for peer, frame in held[1:]:
            peer.honestly(frame)
        assert [(await one).offset for one in pending] == [0, 1, 2]


async def broker_round_trip(producer: Producer) -> None:
    await producer._cluster.locate(TOPIC)


async def test_a_failure_nobody_waits_for_is_told_by_flush(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, fails(ErrorCode.BATCH_INVALID, "no good"))
    async with producer_of(broker) as producer:
        producer.send_nowait(b"one")
        with pytest.raises(Rejected, match="no good"):
            await producer.flush()
        await producer.flush()


async def test_leaving_tells_of_failures_and_leaves_nothing_behind(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, fails(ErrorCode.BATCH_INVALID, "no good"))
    with pytest.raises(Rejected, match="no good"):
        async with producer_of(broker) as producer:
            producer.send_nowait(b"one")
    assert broker.count(frames.CLOSE) == 1


async def test_leaving_after_an_error_does_not_wait_for_answers(broker: ScriptedBroker) -> None:
    broker.script(frames.PUBLISH, stays_silent)
    found: list[PendingSend] = []

    async def send_and_fail() -> None:
        async with producer_of(broker, batching=ONE_BY_ONE) as producer:
            found.append(producer.send_nowait(b"one"))
            await broker.received(frames.PUBLISH)
            raise KeyError

    with pytest.raises(KeyError):
        await send_and_fail()
    with pytest.raises(OutcomeUnknown, match="may have been taken"):
        await found[0]


async def test_a_cancelled_sender_takes_nobody_along(broker: ScriptedBroker) -> None:
    held: list[tuple[Peer, Frame]] = []
    broker.script(frames.PUBLISH, lambda peer, frame: held.append((peer, frame)))
    async with producer_of(broker) as producer:
        tasks = [asyncio.create_task(producer.send(b"%d" % n)) for n in range(3)]
        await broker.received(frames.PUBLISH)
        tasks[0].cancel()
        peer, frame = held[0]
        peer.honestly(frame)
        assert [(await task).offset for task in tasks[1:]] == [1, 2]


async def test_partitions_take_turns_and_keys_have_their_own(broker: ScriptedBroker) -> None:
    broker.partitions[TOPIC] = [f"{TOPIC}-part-{n}" for n in range(3)]
    async with producer_of(broker) as producer:
        receipts = [await producer.send(b"turn") for _ in range(3)]
        assert [receipt.topic for receipt in receipts] == producer.partitions
        keyed = [await producer.send(b"key", key="foobar") for _ in range(2)]
    assert {receipt.topic for receipt in keyed} == {f"{TOPIC}-part-{0x85944171F73967E8 % 3}"}
    assert broker.topic(f"{TOPIC}-part-1").epochs == {"shop-1": 1}


async def test_other_timing_means_another_batch(broker: ScriptedBroker) -> None:
    async with producer_of(broker) as producer:
        pending = [producer.send_nowait(b"now"), producer.send_nowait(b"too")]
        pending += [producer.send_nowait(b"later", deliver_after=1.5) for _ in range(2)]
        pending += [producer.send_nowait(b"now again")]
        assert [(await one).offset for one in pending] == [0, 1, 2, 3, 4]
    assert [entry.count for entry in broker.topic(TOPIC).entries] == [2, 2, 1]


@pytest.mark.parametrize(
    ("payload", "fields", "reason"),
    [
        ("text", {}, "a payload is bytes, not str"),
        (b"", {"key": 5}, "a routing key is text"),
        (b"", {"attributes": {"a": 1}}, "names and values are text"),
        (b"", {"attributes": {"x-ttl": "1"}}, "pass ttl="),
        (b"", {"schema_id": -1}, "invalid schema_id"),
        (b"", {"ttl": 0}, "invalid ttl"),
        (b"", {"deliver_at": 5, "deliver_after": 5}, "exclude each other"),
        (b"", {"compaction_key": b"\xff"}, "UTF-8"),
        (bytes(5 * 1024 * 1024), {}, "exceeds the"),
    ],
)
async def test_what_cannot_be_sent_is_refused_at_once(
    broker: ScriptedBroker, payload: Any, fields: Any, reason: str
) -> None:
    async with producer_of(broker) as producer:
        with pytest.raises(Rejected, match=reason):
            producer.send_nowait(payload, **fields)
        assert producer.pending_bytes == 0


async def test_a_broker_that_is_not_there_is_named(broker: ScriptedBroker) -> None:
    await broker.stop()
    with pytest.raises(Unavailable, match=r"danube://127.0.0.1:.* cannot be reached"):
        async with producer_of(broker):
            pass


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (loses_request, Unavailable),
        (stays_silent, Timeout),
        (fails(ErrorCode.ARGUMENT_INVALID, "who are you"), Rejected),
        (lambda peer, frame: peer.send(frames.WELCOME, 0, frame.request, pb.Welcome(version=9)), Rejected),
        (lambda peer, frame: peer.send(frames.PONG, 0, frame.request), Timeout),
        (lambda peer, frame: peer.send_raw(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Unavailable),
    ],
)
async def test_a_handshake_that_fails_says_why(
    broker: ScriptedBroker, fault: Any, error: type[DanubeError]
) -> None:
    broker.script(frames.HELLO, fault)
    with pytest.raises(error):
        async with producer_of(broker, timeout=0.05, retries=Retries(attempts_max=0)):
            pass


async def test_an_announced_end_lets_answers_come_first(broker: ScriptedBroker) -> None:
    def announce(peer: Peer, frame: Frame) -> None:
        peer.fail(0, 0, ErrorCode.STOPPING, "stopping")
        peer.honestly(frame)

    broker.script(frames.PUBLISH, announce)
    async with producer_of(broker, idempotent=False, batching=ONE_BY_ONE) as producer:
        assert (await producer.send(b"one")).offset == 0
        broker.drop_all()
        assert (await producer.send(b"two")).offset == 1


async def test_a_silent_connection_is_pinged_and_left_if_it_does_not_answer(broker: ScriptedBroker) -> None:
    broker.welcome.idle_seconds_max = 1
    broker.script(frames.PING, *[stays_silent] * 1000)
    async with producer_of(broker, timeout=0.2) as producer:
        await broker.received(frames.HELLO, 2)
        assert (await producer.send(b"one")).offset == 0
