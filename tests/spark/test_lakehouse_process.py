"""`danube lakehouse sync` as a process: killed, with a broker that restarts, into a table on S3 that a SQL catalog knows."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError
from spark_harness.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "contract" / "stores"))

from peer_servers import BUCKET, WRITER, PeerServer, start_seaweedfs

SECONDS_MAX = 250
"""On a machine that has much else to do."""
pytestmark = pytest.mark.timeout(2 * SECONDS_MAX)
TOPIC = "/default/shipped"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerServer]:
    server = start_seaweedfs(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


class Shipping:
    """Processes of the command, and its table as pyiceberg sees it."""

    def __init__(self, folder: Path, s3: PeerServer, broker: BrokerProcess) -> None:
        self._folder = folder
        warehouse = f"s3a://{BUCKET}/lake"
        store = {"endpoint": s3.endpoint, "access_key": WRITER[0], "secret_key": WRITER[1]}
        config = {
            "storage": {"mode": "object_store", "durable": {"backend": "s3", "root": f"{BUCKET}/x", **store}}
        }
        (folder / "store.yml").write_text(yaml.safe_dump(config))
        self._arguments = [
            "lakehouse", "sync", TOPIC, "--raw", "--broker", broker.url, "--master", "local[1]",
            "--catalog", "sql", "--uri", f"jdbc:sqlite:{folder}/catalog.db", "--warehouse", warehouse,
            "--table", "sales.shipped", "--store", str(folder / "store.yml"), "-o", "json",
            "--commit-rows", "20", "--commit-interval", "0.1",
        ]  # fmt: skip
        properties = {
            "s3.endpoint": s3.endpoint,
            "s3.access-key-id": WRITER[0],
            "s3.secret-access-key": WRITER[1],
            "s3.region": "us-east-1",
        }
        self._properties = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": warehouse, **properties}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *options: str) -> subprocess.Popen[str]:
        with (self._folder / "stderr").open("a") as stderr:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("danube")), *self._arguments, *options],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def wait_for_commit(self, process: subprocess.Popen[str], number: int) -> None:
        deadline = monotonic() + SECONDS_MAX
        while self.last_commit() < number:
            assert process.poll() is None, (self._folder / "stderr").read_text()
            assert monotonic() < deadline
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)

    def last_commit(self) -> int:
        if not (self._folder / "catalog.db").exists():
            return 0
        try:
            snapshot = self.table().current_snapshot()
        except NoSuchTableError:
            return 0
        return 0 if snapshot is None else int(snapshot.summary["danube.commit"])

    def table(self) -> Any:
        catalog = SqlCatalog("danube_lake", **self._properties)
        try:
            return catalog.load_table("sales.shipped")
        finally:
            catalog.close()

    def kill(self, process: subprocess.Popen[str]) -> None:
        """With the Java that it started."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def end(self) -> None:
        for process in self._started:
            self.kill(process)


@pytest.fixture
def shipping(tmp_path: Path, s3: PeerServer, broker: BrokerProcess) -> Iterator[Shipping]:
    made = Shipping(tmp_path, s3, broker)
    yield made
    made.end()


def test_a_sync_that_is_killed_and_a_broker_that_restarts_lose_and_repeat_nothing(
    shipping: Shipping, broker: BrokerProcess
) -> None:
    published = 0

    def publish(count: int) -> None:
        nonlocal published
        broker.publish(TOPIC, [b"%d" % (published + n) for n in range(count)])
        published += count

    publish(60)
    broker.seal(TOPIC)
    process = shipping.start()
    shipping.wait_for_commit(process, 2)
    broker.kill()
    broker.start()
    publish(100)
    shipping.wait_for_commit(process, shipping.last_commit() + 3)
    shipping.kill(process)
    publish(5)
    finishing = shipping.start("--once")
    document = json.loads(finishing.communicate(timeout=SECONDS_MAX)[0])
    assert finishing.returncode == 0
    assert (document["lag"], document["end"]) == (0, {TOPIC: published})
    rows = shipping.table().scan().to_arrow()
    assert sorted(rows["_offset"].to_pylist()) == list(range(published))
    by_offset = dict(zip(rows["_offset"].to_pylist(), rows["payload"].to_pylist(), strict=True))
    assert all(payload == b"%d" % offset for offset, payload in by_offset.items())
