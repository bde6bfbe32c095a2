"""Topics as tables: in a session, and by `danube sql`, which uses the session of the process if there is one."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from spark_harness.broker_process import BrokerProcess

from pydanube.cli.main import main
from pydanube.kernel.errors import Rejected
from pydanube.spark.failures import SPARK_ERRORS, sentence
from pydanube.spark.session import SparkSettings, open_session
from pydanube.spark.sql import Tables, query

ORDER = {
    "type": "object",
    "properties": {
        "region": {"type": "string"},
        "amount": {"type": "integer"},
        "offset": {"type": "integer"},
    },
}


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    """Orders: some sealed, some not; typed. Regions: two partitions of JSON that nobody declared."""
    orders = [json.dumps({"region": "eu" if n % 3 else "us", "amount": n}).encode() for n in range(30)]
    broker.publish("/default/orders", orders[:20])
    broker.seal("/default/orders")
    broker.publish("/default/orders", [*orders[20:], b"no order"])
    broker.publish("/default/regions", [b"eu", b"us", b"asia"], partitions=2, attributes={"from": "here"})
    with broker.client() as client:
        client.schemas.register("orders-value", json.dumps(ORDER), "json_schema")
        client.schemas.configure_topic("/default/orders", "orders-value", policy="warn")


def danube_sql(broker: BrokerProcess, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["sql", "--broker", broker.address, *arguments])


def test_sealed_and_unsealed_messages_are_one_table_and_join_others(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    statement = """
        SELECT o.region, count(*) AS orders, sum(o.amount) AS total, max(o.offset) AS last, any_value(r.attributes['from'])
        FROM `/default/orders` AS o -- not `/default/nothing`
        JOIN `/default/regions` r ON o.region = string(r.payload)
        GROUP BY o.region ORDER BY total
    """
    rows = query(spark, statement, Tables(broker.connection)).collect()
    assert [tuple(row) for row in rows] == [("us", 10, 135, 27, "here"), ("eu", 20, 300, 29, "here")]


def test_a_table_has_the_message_and_the_fields_of_its_schema(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    statement = "SELECT * FROM `/default/orders`"
    typed = query(spark, statement, Tables(broker.connection))
    raw = query(spark, statement, Tables(broker.connection, typed=False))
    assert raw.columns[:3] == ["topic", "partition", "offset"]
    assert raw.columns[-1] == "payload"
    assert typed.columns == [*raw.columns, "region", "amount", "offset_", "_decode_error"]
    [bad] = typed.where("_decode_error IS NOT NULL").collect()
    assert (bad.offset, bad.payload, bad.amount) == (30, bytearray(b"no order"), None)


def test_the_command_prints_rows_and_says_when_there_are_more(
    spark: SparkSession, broker: BrokerProcess
) -> None:
    statement = "SELECT offset, region FROM `/default/orders` WHERE amount < 3 ORDER BY offset"
    every = danube_sql(broker, statement, "-o", "json")
    assert (every.exit_code, every.stderr) == (0, "")
    assert [json.loads(line) for line in every.stdout.splitlines()] == [
        {"offset": 0, "region": "us"},
        {"offset": 1, "region": "eu"},
        {"offset": 2, "region": "eu"},
    ]
    some = danube_sql(broker, statement, "-o", "csv", "--limit", "2")
    assert some.stdout.splitlines() == ["offset,region", "0,us", "1,eu"]
    assert "only the first 2 rows" in some.stderr


def test_a_file_gets_all_rows_from_a_position_on(
    spark: SparkSession, broker: BrokerProcess, tmp_path: Path
) -> None:
    statement = tmp_path / "statement.sql"
    statement.write_text("SELECT offset, payload FROM `/default/orders`;")
    to = tmp_path / "rows.parquet"
    ended = danube_sql(
        broker, "-f", str(statement), "-o", "parquet", "--to", str(to), "--from", "18", "--raw"
    )
    assert (ended.exit_code, ended.stdout) == (0, ""), ended.stderr
    assert sorted(pq.read_table(to)["offset"].to_pylist()) == list(range(18, 31))


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("SELECT * FROM `/default/ordres`", "topic /default/ordres does not exist, or stores no messages: did you mean"),
        ("SELECT *\nFROM `/default/orders` WERE 1", "Syntax error at or near '1': extra input '1' (line 2, column 29)"),
        ("SELECT area FROM `/default/orders`", "`area` cannot be resolved"),
        ("SELECT raise_error('so it is') FROM `/default/orders`", "so it is"),
        ("SELECT int(string(payload)) FROM `/default/regions`", "cannot be cast to \"INT\""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(
    spark: SparkSession, broker: BrokerProcess, statement: str, words: str
) -> None:
    ended = danube_sql(broker, statement)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("Error: ")
    assert words in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_an_error_of_ours_is_told_from_where_the_job_ran(spark: SparkSession) -> None:
    def refuse(batches: object) -> object:
        from pydanube.kernel.errors import Rejected

        raise Rejected("the order is wrong: send another")

    with pytest.raises(SPARK_ERRORS) as failed:
        spark.range(1).mapInArrow(refuse, "id long").collect()  # type: ignore[arg-type]
    assert sentence(failed.value) == "the order is wrong: send another"


def test_following_prints_rows_as_they_come(spark: SparkSession, broker: BrokerProcess) -> None:
    statement = "SELECT offset, amount FROM `/default/orders` WHERE amount >= 25"
    ended = danube_sql(broker, statement, "--follow", "--from", "earliest", "--limit", "5", "-o", "csv")
    assert (ended.exit_code, ended.stderr) == (0, "")
    lines = ended.stdout.splitlines()
    assert (lines[0], sorted(lines[1:])) == ("offset,amount", ["25,25", "26,26", "27,27", "28,28", "29,29"])
    nothing = danube_sql(broker, "SELECT 1", "--follow")
    assert nothing.exit_code == 1
    assert "--follow needs a statement that reads a topic" in nothing.stderr


def test_the_session_that_is_there_is_used_if_it_has_what_is_needed(spark: SparkSession) -> None:
    # PySpark takes the last session that made a frame for the active one.
    spark.newSession().createDataFrame([(1,)], "number int")
    assert open_session(SparkSettings(libraries=["iceberg", "delta"])) is spark
    with pytest.raises(Rejected, match="opened without kafka: stop it first"):
        open_session(SparkSettings(libraries=["iceberg", "kafka"]))
