"""Commands that run on Spark, as far as no Spark is needed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pydanube.cli.main import main


def danube(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, arguments, input=stdin)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give a statement, or a file of one by -f"),
        (["SELECT 1", "-f", "-"], "give a statement, or a file of one by -f"),
        ([" \n"], "the statement is empty"),
        (["SELECT 1", "-o", "parquet"], "--output parquet needs --to FILE"),
        (["SELECT 1", "--follow", "--to", "rows.csv"], "--follow prints rows as they come"),
        (["SELECT 1", "--follow", "--master", "sc://127.0.0.1"], "cannot run on a Spark Connect server"),
        (["SELECT 1", "--conf", "master=local"], "expected spark.NAME=VALUE"),
        (["SELECT 1", "--limit", "-1"], "--limit"),
        (["SELECT 1", "--jars-dir", "not-there"], "does not exist"),
    ],
)
def test_wrong_usage_is_said_before_anything_starts(arguments: list[str], words: str) -> None:
    ended = danube("sql", *arguments)
    assert ended.exit_code == 2
    assert words in " ".join(ended.stderr.split())


def test_a_broker_that_is_not_there_is_an_error_before_spark_starts() -> None:
    ended = danube("sql", "--broker", "127.0.0.1:1", "SELECT * FROM `/default/orders`")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert "127.0.0.1:1" in ended.stderr


def test_a_name_that_is_no_topic_is_an_error() -> None:
    ended = danube("sql", "-f", "-", stdin="SELECT * FROM `/orders`")
    assert ended.exit_code == 1
    assert "/orders" in ended.stderr


def test_without_the_extra_a_spark_command_says_how_to_get_it() -> None:
    code = (
        "import importlib.util as u, sys; found = u.find_spec; "
        "u.find_spec = lambda name, *rest: None if name == 'pyspark' else found(name, *rest); "
        "from pydanube.cli.main import main; main(sys.argv[1:])"
    )
    for arguments in (["sql", "SELECT 1"], ["spark", "info"]):
        ended = subprocess.run(
            [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 1
        assert ended.stderr == "Error: this command needs Spark: `pip install 'pydanube[spark]'`\n"


def test_info_tells_what_a_job_would_run_on() -> None:
    found = json.loads(danube("spark", "info", "-o", "json").stdout)
    assert found["spark"].startswith("4.")
    assert int(found["java"]) >= 17


def test_jars_are_listed_with_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "iceberg-spark-runtime-4.1_2.13-1.12.0.jar").touch()
    arguments = (
        "iceberg",
        "delta",
        "--jars-dir",
        str(tmp_path),
        "--package",
        "org.postgresql:postgresql:42.7.0",
    )
    found = json.loads(danube("spark", "jars", *arguments, "-o", "json").stdout)
    assert [(each["library"], each["directory"] is not None) for each in found] == [
        ("iceberg", True),
        ("delta", False),
        ("", False),
    ]


def test_an_unknown_library_is_refused_with_the_nearest() -> None:
    ended = danube("spark", "jars", "detla")
    assert ended.exit_code == 1
    assert "did you mean delta?" in ended.stderr
