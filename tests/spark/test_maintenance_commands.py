"""Maintenance through the command line, as an operator would: reports, exit statuses, tables replayed."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess, StartBroker

from pydanube.cli.main import main


class Operator:
    """Somebody with the `danube` command, the addresses of a broker, and a Spark that is running already."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._addresses = {"DANUBE_ADMIN_ADDR": broker.admin_address, "DANUBE_URL": broker.url}

    def danube(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env=self._addresses)

    def document(self, *arguments: str, status: int = 0) -> Any:
        result = self.danube(*arguments, "--output", "json")
        assert result.exit_code == status, result.output
        return json.loads(result.stdout)


@pytest.fixture(scope="module")
def broker(start_broker: StartBroker) -> BrokerProcess:
    """One whose topics are all of these tests: `audit --all` looks at each."""
    return start_broker()


@pytest.fixture(scope="module")
def operator(spark: SparkSession, broker: BrokerProcess) -> Operator:
    return Operator(broker)


def payload(number: int) -> bytes:
    """Nothing that could be stored in fewer bytes, so that it is found in the file."""
    return sha256(b"%d" % number).digest()


def payloads(broker: BrokerProcess, topic: str) -> list[bytes]:
    with broker.client() as client, client.reader(topic, start="earliest", end="latest") as reader:
        return [message.payload for message in reader]


def test_damage_is_found_wherever_it_is(operator: Operator, broker: BrokerProcess) -> None:
    good, bad = "/default/good", "/default/bad"
    for topic in (good, bad):
        for number in range(3):
            broker.publish(topic, [payload(20 * number + each) for each in range(20)])
            broker.seal(topic)
        broker.publish(topic, [b"not sealed"] * 3)
    everything = operator.document("audit", "--all")
    found = {each["topic"]: each for each in everything["topics"]}
    assert everything["findings"] == []
    assert {(each["messages"], each["unsealed"], each["segments"]) for each in found.values()} == {(60, 3, 3)}

    segments = operator.document("segments", "list", bad)
    page, missing = Path(segments[0]["place"]), Path(segments[2]["place"])
    data = bytearray(page.read_bytes())
    data[data.index(payload(13))] ^= 1
    page.write_bytes(data)
    missing.rename(missing.with_suffix(".away"))
    report = operator.document("audit", good, bad, status=1)
    places = {finding["place"] for finding in report["findings"]}
    assert places == {str(page), str(missing)}
    told = " ".join(finding["what"] for finding in report["findings"])
    assert "row group 0" in told
    assert "column payload" in told
    assert {each["topic"]: each["messages"] for each in report["topics"]} == {good: 60, bad: 20}
    missing.with_suffix(".away").rename(missing)


def test_a_topic_is_compacted_and_a_key_erased(operator: Operator, broker: BrokerProcess) -> None:
    topic = "/default/kept"
    for key in ("eve", "bob"):
        broker.publish(topic, [key.encode()], key=key)
        broker.seal(topic)
    planned = operator.document("compact", topic, "--dry-run")
    assert (len(planned["groups"]), planned["segments_after"]) == (1, 2)
    done = operator.document("compact", topic)
    assert (done["removed"], done["segments_before"], done["segments_after"]) == (0, 2, 1)
    assert operator.document("erase", topic, "--key", "eve", "--dry-run")["removed"] == 1
    assert payloads(broker, topic) == [b"eve", b"bob"]
    erased = operator.document("erase", topic, "--key", "eve")
    assert (erased["removed"], erased["found_afterwards"], erased["old_files_left"]) == (1, 0, [])
    assert payloads(broker, topic) == [b"bob"]


def test_rows_of_a_table_become_messages_once(
    operator: Operator, broker: BrokerProcess, spark: SparkSession, tmp_path: Path
) -> None:
    table, topic = tmp_path / "orders", "/default/orders"
    rows = [(1, "eu", 10.5, {"a": "1"}), (2, "us", None, None), (3, "eu", 2.0, {})]
    spark.createDataFrame(
        rows, "id INT, region STRING, amount DOUBLE, extra MAP<STRING, STRING>"
    ).write.parquet(str(table))
    common = ("replay", str(table), "--to", topic, "--key", "region", "--attributes", "id,extra")
    assert operator.document(*common, "--where", "id < 3", "--dry-run")["rows"] == 2
    for _ in range(2):
        report = operator.document(*common, "--where", "id < 3", "--id", "first-load")
        assert (report["rows"], report["topic"]) == (2, topic)
    with broker.client() as client, client.reader(topic, start="earliest", end="latest") as reader:
        found = {json.loads(message.payload)["id"]: message for message in reader}
    assert json.loads(found[2].payload) == {"id": 2, "region": "us", "amount": None, "extra": None}
    assert {number: message.key for number, message in found.items()} == {1: "eu", 2: "us"}
    assert found[1].attributes == {"id": "1", "a": "1", "x-replayed-from": str(table)}
    wrong = operator.danube(*common, "--payload", "amuont")
    assert wrong.exit_code == 1
    assert "did you mean amount?" in wrong.output


def test_what_cannot_be_is_refused_at_once(operator: Operator) -> None:
    for arguments, words in (
        (("audit",), "name topics, or say --all"),
        (("erase", "/default/kept"), "say what to erase"),
        (("compact", "/default/kept", "--tombstones-older-than", "7d"), "goes with --keep-latest"),
        (("compact", "/default/kept", "--min-size", "much"), "is no size"),
    ):
        result = operator.danube(*arguments)
        assert (result.exit_code, words in result.output) == (2, True), result.output
    unknown = operator.danube("compact", "/default/none")
    assert (unknown.exit_code, "does not exist" in unknown.output) == (1, True)
    nobody = operator.danube("audit", "/default/kept", "--admin-addr", "127.0.0.1:1")
    assert nobody.exit_code == 3
