"""A disk that runs full under a native producer: it waits, and everything it sent is there once, in order."""

import asyncio
from pathlib import Path

from pydanube.client import Batching, PendingSend, Producer, QueueFull, connect
from tests.fault.broker_process import BrokerProcess
from tests.fault.history import Attempt, End, History, TopicHistory
from tests.fault.messages import Message, payload_of
from tests.fault.native_consumers import NativeReader
from tests.fault.native_producers import PATIENT
from tests.fault.small_disk import SmallDisk

MESSAGE_BYTES = 20_000
PENDING_BYTES = 1 << 20
MESSAGES_MAX = 5_000
STALL_SECONDS = 2.0
"""Nothing was taken for so long: the disk is full, and the client tries again and again."""


class Sender:
    """Sends as fast as it may, and notes what it hears."""

    def __init__(self, history: History, topic: TopicHistory, producer: Producer) -> None:
        self._history = history
        self._topic = topic
        self._producer = producer
        self._pending: list[tuple[Attempt, PendingSend]] = []
        self.last = Message("p", -1)

    def send(self) -> None:
        message = Message("p", self.last.sequence + 1)
        pending = self._producer.send_nowait(payload_of(message, MESSAGE_BYTES))
        self.last = message
        self._pending.append((self._history.publish_started(self._topic, message), pending))

    async def send_until_stalled(self) -> bool:
        """Whether it came to a stall before the messages ran out."""
        while self.last.sequence < MESSAGES_MAX:
            try:
                self.send()
            except QueueFull:
                try:
                    await asyncio.wait_for(self._producer.ready(), STALL_SECONDS)
                except TimeoutError:
                    return True
        return False

    async def hear(self) -> None:
        """Every message is acknowledged at last: patience is all it takes."""
        for attempt, pending in self._pending:
            self._history.publish_ended(self._topic, attempt, End.OK, (await pending).offset)
        self._pending.clear()


async def test_a_full_disk_makes_an_idempotent_producer_wait(disk: SmallDisk, tmp_path: Path) -> None:
    history = History()
    topic = history.topic("/default/full")
    topic.in_order.add("p")
    broker = BrokerProcess(tmp_path / "broker", data_dir=disk.data_dir, prefix=disk.prefix)
    try:
        history.broker_started()
        await broker.start()
        async with (
            connect(broker.address, retries=PATIENT) as client,
            client.producer(
                topic.name, batching=Batching(linger_ms=1), max_pending_bytes=PENDING_BYTES
            ) as producer,
        ):
            sender = Sender(history, topic, producer)
            sender.send()
            await sender.hear()
            disk.fill(broker)
            assert await sender.send_until_stalled(), "the disk never ran full"
            disk.free(broker)
            if not disk.heals:
                await broker.kill()
                history.broker_ended()
                history.broker_started()
                await broker.start()
            await asyncio.wait_for(sender.hear(), 60)
            sender.send()
            await sender.hear()
        reader = NativeReader(broker.address, history, topic, "auditor", in_batches=True)
        await reader.read_all()
        await reader.close()
        history.judge(topic, sender.last)
        assert history.problems == [], broker.log_tail()
        assert reader.seen.next_offset == sender.last.sequence + 1
    finally:
        if broker.is_running:
            await broker.kill()
