"""The connection breaks at every single frame, before the broker reads it and after: nothing is lost or doubled."""

from contextlib import suppress

import pytest
from scripted_broker import Peer, ScriptedBroker

from pydanube.client import Batching, Client, OutcomeUnknown, Retries, connect
from pydanube.protocol.native.frames import Frame

TOPIC = "/default/t"
PATIENT = Retries(attempts_max=20, backoff=0.0005, backoff_max=0.001)
SENT = [b"%d" % number for number in range(12)]


class BreakingBroker(ScriptedBroker):
    """Hangs up at the n-th frame of all, having read it or not."""

    def __init__(self, frame_number: int, *, after_reading: bool) -> None:
        super().__init__()
        self._left = frame_number
        self._after_reading = after_reading
        self.has_broken = False

    def handle(self, peer: Peer, frame: Frame) -> None:
        self._left -= 1
        if self._left != 0:
            super().handle(peer, frame)
            return
        self.has_broken = True
        if self._after_reading:
            peer.is_muted = True
            super().handle(peer, frame)
        peer.drop()


async def publish_consume_and_read(client: Client) -> list[bytes]:
    async with client.producer(TOPIC, name="shop", batching=Batching(max_messages=3)) as producer:
        pending = [producer.send_nowait(payload) for payload in SENT]
        assert [(await one).offset for one in pending] == list(range(12))
    async with client.consumer(TOPIC, subscription="s", start="earliest") as consumer:
        seen: set[int] = set()
        while len(seen) < 12:
            message = await consumer.receive(timeout=10)
            assert message.payload == SENT[message.offset or 0]
            seen.add(message.offset or 0)
            with suppress(OutcomeUnknown):  # then it comes again
                await consumer.ack(message, confirm=True)
        try:
            await consumer.seek("earliest")
        except OutcomeUnknown:
            await consumer.seek("earliest")  # it breaks only once
        while (await consumer.receive(timeout=10)).offset != 0:
            pass
    async with client.reader(TOPIC, end="latest", prefetch_messages=3) as reader:
        return [message.payload async for message in reader]


@pytest.mark.parametrize("after_reading", [False, True])
async def test_whichever_frame_the_connection_breaks_at(after_reading: bool) -> None:
    broken = frame_number = 0
    while True:
        frame_number += 1
        broker = BreakingBroker(frame_number, after_reading=after_reading)
        await broker.start()
        try:
            async with connect(broker.url, timeout=5, retries=PATIENT) as client:
                assert await publish_consume_and_read(client) == SENT
            assert broker.topic(TOPIC).payloads() == SENT
        finally:
            await broker.stop()
        if not broker.has_broken:
            break
        broken += 1
    assert broken > 20, "the story has that many frames, and each was one at which the connection broke"
