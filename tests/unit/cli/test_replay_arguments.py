"""What `danube replay` takes for a table, and what for a topic."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from pydanube.cli.main import main
from pydanube.cli.replay_table import format_of, names_table


@pytest.mark.parametrize(
    "arguments",
    [
        ["s3://bucket/orders", "--to", "/default/t"],
        ["lake.sales.orders", "--to", "/default/t"],
        ["orders/*.parquet", "--to", "/default/t"],
        ["--to", "/default/t", "--format", "delta", "somewhere"],
        ["--format=iceberg", "orders"],
    ],
)
def test_tables(arguments: list[str]) -> None:
    assert names_table(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["/default/orders", "--to", "/default/t"],
        ["default/orders", "--to", "/default/t"],
        ["--to", "/default/t", "--rate", "0.5", "/default/orders"],
        ["--help"],
        [],
    ],
)
def test_topics(arguments: list[str]) -> None:
    assert not names_table(arguments)


def test_a_folder_that_is_there_is_a_table(tmp_path: Path) -> None:
    assert names_table([str(tmp_path), "--to", "/default/t"])


@pytest.mark.parametrize(
    ("file", "form"),
    [
        ("metadata/v1.metadata.json", "iceberg"),
        ("_delta_log/00000000000000000000.json", "delta"),
        ("metadata/notes.txt", "parquet"),
    ],
)
def test_a_folder_tells_its_form(tmp_path: Path, file: str, form: str) -> None:
    (tmp_path / file).parent.mkdir()
    (tmp_path / file).touch()
    assert format_of(str(tmp_path)) == form
    assert format_of("lake.sales.orders") == "iceberg"


def test_each_has_its_own_help() -> None:
    of_topics = CliRunner().invoke(main, ["replay", "--help"]).output
    of_tables = CliRunner().invoke(main, ["replay", "--format", "parquet", "--help"]).output
    assert "--until" in of_topics
    assert "--payload" not in of_topics
    assert "--payload" in of_tables
