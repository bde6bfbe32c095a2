"""Spark tests: one session for all that a worker runs; a broker in a process of its own for each module."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("spark_harness")

from spark_harness.broker_process import BrokerProcess, StartBroker  # noqa: E402

from pydanube.spark.session import SparkSettings, open_session  # noqa: E402

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            # PySpark leaves the socket that a result came through to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


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
            libraries=("iceberg", "delta"),
            config={
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(warehouse),
                "spark.databricks.delta.snapshotPartitions": "1",
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 "
                f"-Dderby.stream.error.file={warehouse / 'derby.log'}",
            },
        )
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def start_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartBroker]:
    """Start another broker, with settings as in its file."""
    started: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        # Journal files are written in full when they are made: small ones make a broker start at once.
        settings.setdefault("storage", {"wal": {"rotation": {"max_bytes": 1 << 20}}})
        broker = BrokerProcess(tmp_path_factory.mktemp("broker"), settings)
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.kill()


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    """A broker for the tests of a module: each uses topics of its own."""
    return start_broker()
