"""`danube replay TABLE` of tables that a sync made: back into a topic, each row once."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess
from spark_harness.lakehouse import Lake, drain

from pydanube.cli.main import main

SECONDS_MAX = 600
"""On a machine that has much else to do."""
pytestmark = pytest.mark.timeout(SECONDS_MAX)


def replay(broker: BrokerProcess, *arguments: str) -> Any:
    result = CliRunner().invoke(
        main, ["replay", *arguments, "--output", "json"], env={"DANUBE_URL": broker.url}
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.fixture
def make_lake(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str], Lake]]:
    made: list[Lake] = []

    def make(form: str) -> Lake:
        made.append(Lake(spark, tmp_path, form))
        return made[-1]

    yield make
    for lake in made:
        lake.close()


@pytest.mark.parametrize("form", ["iceberg", "delta"])
def test_rows_of_a_lakehouse_table_go_back_into_a_topic(
    form: str, make_lake: Callable[[str], Lake], broker: BrokerProcess, tmp_path: Path
) -> None:
    topic, again = f"/default/kept-{form}", f"/default/again-{form}"
    lake = make_lake(form)
    sync = lake.sync(broker, topic)
    broker.publish(topic, [b"deleted", b"1"], key="k", attributes={"a": "b"})
    drain(sync)
    first = str(lake.table(f"kept_{form}").commits(1)[0].version)
    broker.publish(topic, [b"2"], key="k")
    drain(sync)
    sync.close()
    # Its file is still there: whoever reads files instead of the table finds it.
    lake.table(f"kept_{form}").discard("_offset = 0")
    table = str(tmp_path / "db" / f"kept_{form}")
    columns = ("--payload", "payload", "--key", "_routing_key", "--attributes", "_offset,_attributes")
    for _ in range(2):
        report = replay(broker, table, "--to", again, *columns, "--id", f"restore-{form}")
        assert (report["rows"], report["topic"]) == (2, again)
    with broker.client() as client, client.reader(again, start="earliest", end="latest") as reader:
        found = sorted((message.payload, message.key, message.attributes) for message in reader)
    assert found == [
        (b"1", "k", {"_offset": "1", "a": "b", "x-replayed-from": table}),
        (b"2", "k", {"_offset": "2", "x-replayed-from": table}),
    ]
    older = replay(broker, table, "--to", again, *columns, "--version", first, "--dry-run")
    assert older["rows"] == 2
    assert replay(broker, table, "--to", again, "--where", "_offset = 2", "--dry-run")["rows"] == 1
