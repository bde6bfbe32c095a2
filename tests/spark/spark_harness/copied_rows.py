"""What is copied by `copying.py`, how often Spark is started to do it, and what came of it."""

import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from spark_harness.broker_process import BrokerProcess
from spark_harness.copying import FROM_FILES, MESSAGES_PER_BATCH, SOURCE, CopyingProcess
from spark_harness.dying_sink import FatalPoints

BATCHES = 3
ROWS = BATCHES * MESSAGES_PER_BATCH
LIVES_MAX = 12
"""More than there are deaths: on a busy machine Spark may give up waiting for its own workers."""
TRIES_MAX = 3


def prepare(broker: BrokerProcess, folder: Path, *, seed: int = 7) -> list[bytes]:
    """Three batches of rows, many of them alike, as files and as messages."""
    dice = random.Random(seed)
    rows = [f"{dice.randrange(ROWS // 3):03d}" for _ in range(ROWS)]
    (folder / "files").mkdir()
    (folder / "points").mkdir()
    for first in range(0, ROWS, MESSAGES_PER_BATCH):
        text = "\n".join(rows[first : first + MESSAGES_PER_BATCH])
        (folder / "files" / f"{first}.txt").write_text(text)
    payloads = [row.encode() for row in rows]
    broker.publish(SOURCE, payloads, partitions=2)
    broker.publish(FROM_FILES, [], partitions=2)
    return payloads


def stored_payloads(broker: BrokerProcess, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    with broker.client() as client:
        for part in client.partitions(topic):
            with client.reader(part, start="earliest", end="latest") as reader:
                for batch in reader.batches():
                    found.update(batch.column("payload").to_pylist())
    return found


def die(broker: BrokerProcess, folder: Path, points: FatalPoints, tasks: int) -> None:
    """Start Spark until it has met all deaths that are planned."""
    for _ in range(TRIES_MAX):
        process = CopyingProcess(broker.url, folder, tasks)
        assert not process.wait(), "it ended well"
        if not points.unmet():
            return
    raise AssertionError(f"not met after {TRIES_MAX} lives:\n{process.log_tail()}")


def live_on(broker: BrokerProcess, folder: Path, tasks: Sequence[int]) -> int:
    """Start Spark again until it is done, each time with another number of tasks; returns how many lives that took."""
    for life in range(LIVES_MAX):
        process = CopyingProcess(broker.url, folder, tasks[life % len(tasks)])
        if process.wait():
            return life + 1
    raise AssertionError(f"not done after {LIVES_MAX} lives:\n{process.log_tail()}")


def kill_broker_at(broker: BrokerProcess, points: FatalPoints, point: str) -> threading.Thread:
    """Kill the broker while a task waits in the middle of a batch, and start it again while that goes on."""
    points.plan_pause(point)

    def kill() -> None:
        points.wait_for_pause(point)
        broker.kill()
        points.end_pause(point)
        broker.start()

    thread = threading.Thread(target=kill, daemon=True)
    thread.start()
    return thread
