"""A broker that stands still for a while and goes on: nothing is lost, and its clients go on with it."""

import asyncio
import random
from pathlib import Path

from tests.fault.broker_process import BrokerProcess
from tests.fault.clients import Habits, Producer
from tests.fault.history import End, History


async def test_what_was_sent_to_a_paused_broker_is_taken_when_it_goes_on(tmp_path: Path) -> None:
    history, dice = History(), random.Random(1)
    broker = BrokerProcess(tmp_path)
    topic = history.topic("/default/paused")
    patient = Producer(
        broker.address,
        history,
        topic,
        "patient",
        habits=Habits(bytes_min=10, bytes_max=10, deadline_seconds=30),
        dice=dice,
    )
    hasty = Producer(
        broker.address,
        history,
        topic,
        "hasty",
        habits=Habits(bytes_min=10, bytes_max=10, deadline_seconds=0.2),
        dice=dice,
    )
    try:
        history.broker_started()
        await broker.start()
        await patient.register()
        await hasty.register()
        broker.pause()
        _, gave_up = await hasty.publish()
        waiting = asyncio.create_task(patient.publish())
        broker.resume()
        assert gave_up is End.UNKNOWN
        assert (await waiting)[1] is End.OK
        assert (await patient.publish())[1] is End.OK
        await hasty.publish_surely()
        assert history.problems == []
    finally:
        if broker.is_running:
            await broker.kill()
        await patient.close()
        await hasty.close()
