"""`danube lakehouse sync` into a table on S3 that a SQL catalog knows: a process that is killed, a broker too, and the next run."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from peer_servers import BUCKET, WRITER, PeerServer
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess, StartBroker

from pydanube.cli.main import main
from pydanube.spark.lakehouse.catalogs import Catalog, TablePlace
from pydanube.spark.object_store import object_store_config
from pydanube.stores.settings import Backend, DurableSettings

SECONDS_MAX = 250
"""On a machine that has much else to do."""
pytestmark = pytest.mark.timeout(2 * SECONDS_MAX)
TOPIC = "/default/shipped"


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    """One to be killed."""
    return start_broker()


class Shipping:
    """The command, as a process or in this one, and its table as pyiceberg sees it."""

    def __init__(self, folder: Path, s3: PeerServer, broker: BrokerProcess) -> None:
        self._folder = folder
        warehouse = f"s3a://{BUCKET}/lake"
        self._place = TablePlace(
            "iceberg", "sales.shipped", Catalog("sql", f"jdbc:sqlite:{folder}/catalog.db", warehouse)
        )
        self._store = DurableSettings(
            backend=Backend.S3, endpoint=s3.endpoint, access_key=WRITER[0], secret_key=WRITER[1]
        )
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
        self._started: list[subprocess.Popen[bytes]] = []
        self._commits: dict[str, int] = {}
        """By the place of the table's metadata."""

    def finish(self, spark: SparkSession) -> Any:
        """All that is left, in this process; what the command says about it."""
        with self._known_to(spark):
            ended = CliRunner().invoke(main, [*self._arguments, "--once"])
        assert ended.exit_code == 0, ended.output
        return json.loads(ended.stdout)

    @contextmanager
    def _known_to(self, spark: SparkSession) -> Iterator[None]:
        """What the command tells a session that it starts: the catalog, and how to get into the store."""
        catalog = f"spark.sql.catalog.{self._place.catalog.name}"
        config = self._place.spark_config()
        for name, value in object_store_config(self._store).items():
            config[name.replace("spark.", f"{catalog}.", 1)] = value
        for name, value in config.items():
            spark.conf.set(name, value)
        yield
        for name in config:
            spark.conf.unset(name)

    def start(self) -> subprocess.Popen[bytes]:
        with (self._folder / "stderr").open("a") as stderr:
            process = subprocess.Popen(
                [str(Path(sys.executable).with_name("danube")), *self._arguments],
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def wait_for_commit(self, process: subprocess.Popen[bytes], number: int) -> None:
        deadline = monotonic() + SECONDS_MAX
        while self.last_commit() < number:
            assert process.poll() is None, (self._folder / "stderr").read_text()
            assert monotonic() < deadline
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)

    def last_commit(self) -> int:
        place = self._metadata_place()
        if place is None:
            return 0
        # Dear to look at, so only when it has changed.
        if place not in self._commits:
            snapshot = self.table().current_snapshot()
            self._commits[place] = 0 if snapshot is None else int(snapshot.summary["danube.commit"])
        return self._commits[place]

    def _metadata_place(self) -> str | None:
        with closing(sqlite3.connect(self._folder / "catalog.db")) as catalog:
            try:
                found = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall()
            except sqlite3.OperationalError:
                return None  # there is no catalog yet
        return found[0][0] if found else None

    def table(self) -> Any:
        catalog = SqlCatalog("danube_lake", **self._properties)
        try:
            return catalog.load_table("sales.shipped")
        finally:
            catalog.close()

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """With the Java that it started."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def end(self) -> None:
        for process in self._started:
            self.kill(process)


@pytest.fixture
def shipping(tmp_path: Path, s3: PeerServer, broker: BrokerProcess) -> Iterator[Shipping]:
    made = Shipping(tmp_path, s3, broker)
    yield made
    made.end()


def test_a_sync_that_is_killed_and_a_broker_that_restarts_lose_and_repeat_nothing(
    spark: SparkSession, shipping: Shipping, broker: BrokerProcess
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
    publish(60)
    shipping.wait_for_commit(process, shipping.last_commit() + 1)
    shipping.kill(process)
    publish(5)
    document = shipping.finish(spark)
    assert (document["lag"], document["end"]) == (0, {TOPIC: published})
    rows = shipping.table().scan().to_arrow()
    assert sorted(rows["_offset"].to_pylist()) == list(range(published))
    by_offset = dict(zip(rows["_offset"].to_pylist(), rows["payload"].to_pylist(), strict=True))
    assert all(payload == b"%d" % offset for offset, payload in by_offset.items())
