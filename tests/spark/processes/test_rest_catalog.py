"""`danube lakehouse` with Iceberg's own REST catalog server: what is in the tables, for others who ask that server."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess

from pydanube.cli.main import main
from pydanube.spark.lakehouse.catalogs import Catalog, TablePlace

sys.path.insert(0, str(Path(__file__).parent))

from rest_catalog_server import CREDENTIAL, TOKEN, WAREHOUSE, RestCatalogServer, server_jar

SECONDS_MAX = 600
"""On a machine that has much else to do."""
pytestmark = pytest.mark.timeout(2 * SECONDS_MAX)
NOBODY = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogServer]:
    made = RestCatalogServer(server_jar(), tmp_path_factory.mktemp("catalog"))
    made.start()
    yield made
    made.kill()


class Rows:
    """What is in tables, by a program that knows nothing of us."""

    def __init__(self, server: RestCatalogServer) -> None:
        lake = {
            "uri": server.uri,
            "warehouse": WAREHOUSE,
            "credential": CREDENTIAL,
            "oauth2-server-uri": server.token_uri,
        }
        self._catalog = load_catalog("lake", type="rest", **lake)

    def table(self, name: str) -> Any:
        return self._catalog.load_table(name)

    def column(self, table: str, column: str) -> list[Any]:
        """By offset."""
        rows = self.table(table).scan().to_arrow().sort_by("_offset" if column[0] == "_" else column)
        return list(rows[column].to_pylist())

    def offsets(self, table: str) -> list[int]:
        """Also of a table that is not there yet."""
        try:
            return self.column(table, "_offset")
        except NoSuchTableError:
            return []


@pytest.fixture
def rows(server: RestCatalogServer) -> Rows:
    return Rows(server)


def environment(
    broker: BrokerProcess, uri: str, warehouse: str = WAREHOUSE, **secrets: str
) -> dict[str, str]:
    names = {f"DANUBE_CATALOG_{name.upper()}": secret for name, secret in secrets.items()}
    catalog = {"DANUBE_CATALOG": "rest", "DANUBE_CATALOG_URI": uri, "DANUBE_CATALOG_WAREHOUSE": warehouse}
    return {"DANUBE_URL": broker.url, **catalog, **names}


class Processes:
    """Of the command, with a Spark of their own."""

    def __init__(self, folder: Path, broker: BrokerProcess, server: RestCatalogServer) -> None:
        self._environment = os.environ | environment(broker, server.uri, credential=CREDENTIAL)
        self._words = folder / "stderr"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        with self._words.open("a") as stderr:
            process = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("danube")),
                    "lakehouse",
                    *arguments,
                    "--master",
                    "local[1]",
                ],
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def said(self, words: str) -> bool:
        return words in self._words.read_text()

    def wait_until(self, process: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
        """While it lives."""
        deadline = monotonic() + SECONDS_MAX
        while not condition():
            assert monotonic() < deadline, self._words.read_text()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(1)

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
def processes(tmp_path: Path, broker: BrokerProcess, server: RestCatalogServer) -> Iterator[Processes]:
    made = Processes(tmp_path, broker, server)
    yield made
    made.end()


V1 = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "int"}]}
V2 = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "total", "aliases": ["amount"], "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def publish_orders(broker: BrokerProcess, topic: str, schema: object, payloads: list[bytes]) -> None:
    subject = topic.rpartition("/")[2]
    with broker.client() as client:
        made = client.schemas.register(subject, json.dumps(schema), "avro")
        if made.version == 1:
            client.schemas.set_mode(subject, "none")
            with client.producer(topic):
                client.schemas.configure_topic(topic, subject, policy="none")
    broker.publish(topic, payloads, schema_id=made.schema_id, schema_version=made.version)


def test_a_topic_is_kept_exactly_through_the_deaths_of_the_catalog_and_of_the_sync(
    processes: Processes, broker: BrokerProcess, server: RestCatalogServer, rows: Rows
) -> None:
    topic, table = "/default/orders", "sales.orders"
    arguments = (
        "sync", topic, "--table", table, "--commit-rows", "20", "--commit-interval", "0.1",
        "--catalog-property", f"oauth2-server-uri={server.token_uri}",
    )  # fmt: skip
    publish_orders(broker, topic, V1, [b"bad", *(bytes([2 * n]) for n in range(1, 30))])
    broker.seal(topic)
    process = processes.start(*arguments)
    processes.wait_until(process, lambda: rows.offsets(table) == list(range(1, 30)))

    server.kill()
    publish_orders(broker, topic, V1, [bytes([2 * n]) for n in range(30, 40)])
    processes.wait_until(process, lambda: processes.said(f"Connect to {server.uri} failed"))
    server.start()
    processes.wait_until(process, lambda: rows.offsets(table) == list(range(1, 40)))

    publish_orders(broker, topic, V2, [bytes([2 * n]) + b"\x02\x02x" for n in range(40, 45)])
    processes.wait_until(process, lambda: rows.offsets(table)[-1] == 44)
    processes.kill(process)
    publish_orders(broker, topic, V2, [bytes([2 * n]) + b"\x00" for n in range(45, 50)])
    finishing = processes.start(*arguments, "--once", "--output", "json")
    document = json.loads(finishing.communicate(timeout=SECONDS_MAX)[0])
    assert (finishing.returncode, document["lag"], document["end"]) == (0, 0, {topic: 50})

    assert rows.offsets(table) == rows.column(table, "total") == list(range(1, 50))
    assert rows.offsets(f"{table}_quarantine") == [0]
    found = rows.table(table)
    assert {field.name: str(field.field_type) for field in found.schema().fields}["total"] == "long"
    with found.scan().to_duckdb("orders") as duckdb:
        assert duckdb.execute("SELECT count(*), sum(total), count(note) FROM orders").fetchall() == [
            (49, sum(range(50)), 5)
        ]


class Operator:
    """Somebody with the command and a Spark that runs already, which hears of the catalog anew each time."""

    def __init__(self, spark: SparkSession, broker: BrokerProcess, server: RestCatalogServer) -> None:
        self._spark, self._broker, self._server = spark, broker, server

    def lakehouse(
        self, *arguments: str, uri: str | None = None, warehouse: str = WAREHOUSE, **secrets: str
    ) -> Result:
        address = uri or self._server.uri
        place = TablePlace("iceberg", "any.table", Catalog("rest", address, warehouse, secrets))
        for name, value in place.spark_config().items():
            self._spark.conf.set(name, value)
        # Spark looks at these settings once.
        self._spark._jsparkSession.sessionState().catalogManager().reset()  # type: ignore[attr-defined]
        try:
            said = environment(self._broker, address, warehouse, **secrets)
            return CliRunner().invoke(main, ["lakehouse", *arguments], env=said)
        finally:
            for name in place.spark_config():
                self._spark.conf.unset(name)

    def document(self, *arguments: str) -> Any:
        result = self.lakehouse(*arguments, "--output", "json", token=TOKEN)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def operator(spark: SparkSession, broker: BrokerProcess, server: RestCatalogServer) -> Operator:
    return Operator(spark, broker, server)


def test_status_and_compaction(
    operator: Operator, broker: BrokerProcess, server: RestCatalogServer, rows: Rows
) -> None:
    topic, table = "/default/small", "sales.small"
    sync = ("sync", topic, "--table", table, "--raw", "--once", "--commit-rows", "1")
    broker.publish(topic, [b"%d" % number for number in range(5)])
    assert operator.document(*sync)["commits"] == 5
    broker.publish(topic, [b"5"])
    status = operator.document("status", "--table", table)
    assert (status["topic"], status["lag"], status["position"]) == (topic, 1, {topic: 5})
    assert [commit["commit"] for commit in status["commits"]] == [5, 4, 3, 2, 1]
    server.kill()
    server.start()
    compacted = operator.document("compact", "--table", table, "--expire-hours", "0")
    assert (compacted["files_before"], compacted["files_after"]) == (5, 1)
    assert len(rows.table(table).metadata.snapshots) == 1
    assert operator.document(*sync)["messages"] == 1
    assert operator.document("status", "--table", table)["lag"] == 0
    assert rows.offsets(table) == list(range(6))


def test_segments_are_registered_where_they_are(
    operator: Operator, broker: BrokerProcess, rows: Rows
) -> None:
    topic, table = "/default/lent", "sales.lent"
    broker.publish(topic, [b"%d" % number for number in range(10)])
    broker.seal(topic)
    first = operator.document("register", topic, "--table", table)
    assert (first["segments"], first["messages"]) == (1, 10)
    broker.publish(topic, [b"%d" % number for number in range(10, 15)])
    broker.seal(topic)
    assert operator.document("register", topic, "--table", table)["messages"] == 5
    assert operator.document("register", topic, "--table", table)["segments"] == 0
    assert rows.column(table, "offset") == list(range(15))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"credential": "somebody:else"}, ["does not let us in", "DANUBE_CATALOG_CREDENTIAL"]),
        ({"token": "of another"}, ["does not let us in", "DANUBE_CATALOG_TOKEN"]),
        ({}, ["does not let us in", "DANUBE_CATALOG_TOKEN"]),
        ({"token": TOKEN, "warehouse": "elsewhere"}, ["no such warehouse", "--warehouse"]),
        ({"token": TOKEN, "uri": NOBODY}, [NOBODY, "cannot be reached", "--uri"]),
    ],
    ids=["credential", "token", "nothing", "warehouse", "address"],
)
def test_a_catalog_that_does_not_answer_as_hoped(
    given: dict[str, str], words: list[str], operator: Operator, broker: BrokerProcess
) -> None:
    topic, table = "/default/refused", ("--table", "sales.refused")
    broker.publish(topic, [b"kept"])
    commands = [("status", *table), ("compact", *table), ("register", topic, *table)]
    if "uri" not in given:
        # This one would wait.
        commands.append(("sync", topic, *table, "--raw", "--once"))
    for command in commands:
        result = operator.lakehouse(*command, **given)
        assert result.exit_code == 1
        assert result.output.startswith("Error: the catalog ")
        assert [word for word in words if word not in result.output] == []
        assert len(result.output.splitlines()) == 1


@pytest.mark.parametrize("status", [None, 503, 504])
def test_a_change_that_was_made_but_not_answered_is_not_made_again(
    status: int | None, operator: Operator, broker: BrokerProcess, server: RestCatalogServer, rows: Rows
) -> None:
    name = f"unanswered_{status}"
    topic, table = f"/default/{name}", f"sales.{name}"
    sync = ("sync", topic, "--table", table, "--raw", "--once")
    broker.publish(topic, [b"0"])
    operator.document(*sync)
    published, changes = 1, 0
    while True:
        broker.publish(topic, [b"%d" % published])
        published += 1
        server.lose_answer(name, after=changes, status=status)
        result = operator.lakehouse(*sync, token=TOKEN)
        assert result.exit_code == 0, result.output
        assert rows.offsets(table) == list(range(published))
        if not server.has_lost_answer:
            break
        changes += 1
    assert changes >= 3, "a commit is a branch, rows on it, and the main branch moved"
