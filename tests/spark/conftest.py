"""Spark tests: one session and one broker for all of them; who kills a broker starts one of their own."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "contract" / "stores"))
pytest.register_assert_rewrite("spark_harness")

from peer_servers import PeerServer, start_seaweedfs  # noqa: E402
from spark_harness.broker_process import BrokerProcess, StartBroker  # noqa: E402

from pydanube.spark.lakehouse.catalogs import Catalog, TablePlace  # noqa: E402
from pydanube.spark.session import SparkSettings, open_session  # noqa: E402

HERE = Path(__file__).parent
SECONDS_MAX = 300
"""Of a test on a machine that has much else to do; of the first one, which starts Spark, and may fetch jars."""
ON_S3 = TablePlace("iceberg", "db.any", Catalog("sql", "jdbc:sqlite:any.db", "s3a://any"))
"""A table that takes most to be found."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # PySpark leaves the socket that a result came through to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(autouse=True)
def collected_garbage() -> Iterator[None]:
    """Sockets of results are gone before the next test, which may be one that wants no warning of them."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session all tests share: leave nothing of yours in it, and change no setting of it."""
    warehouse = tmp_path_factory.mktemp("spark")
    session = open_session(
        SparkSettings(
            master="local[2]",
            libraries=(*ON_S3.libraries, "delta"),
            packages=ON_S3.packages,
            config={
                "spark.sql.shuffle.partitions": "2",
                # Code that is made for a few rows costs more than it spares; plans that are changed underway, too.
                "spark.sql.codegen.wholeStage": "false",
                "spark.sql.codegen.factoryMode": "NO_CODEGEN",
                "spark.sql.adaptive.enabled": "false",
                "spark.sql.streaming.noDataMicroBatches.enabled": "false",
                "spark.sql.warehouse.dir": str(warehouse),
                # Delta rebuilds a table's state in 50 tasks, whatever its size, if not told otherwise.
                "spark.databricks.delta.snapshotPartitions": "1",
                # Where workers find the sources and sinks that tests make.
                "spark.executorEnv.PYTHONPATH": str(HERE),
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 "
                f"-Dderby.stream.error.file={warehouse / 'derby.log'}",
            },
        )
    )
    # What is loaded by now is no garbage: looking through it after every test takes longer than many a test.
    gc.collect()
    gc.freeze()
    yield session
    session.stop()
    # Else libraries would complain at the end about what nobody has given back.
    gc.unfreeze()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests: each uses topics of its own, and restarts it at most."""
    with _brokers(tmp_path_factory) as start:
        yield start()


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """Start another broker, with settings as in its file."""
    with _brokers(tmp_path_factory) as start:
        yield start


@contextmanager
def _brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    started: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        # Journal files are written in full when they are made: small ones make a broker start at once.
        settings.setdefault("storage", {"wal": {"rotation": {"max_bytes": 1 << 20}}})
        broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings)
        started.append(broker)
        broker.start()
        return broker

    try:
        yield start
    finally:
        for broker in started:
            broker.kill()


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PeerServer]:
    """A store that speaks S3, for the tests of a module."""
    server = start_seaweedfs(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()
