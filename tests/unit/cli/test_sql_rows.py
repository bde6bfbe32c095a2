"""Rows of a query, as people and programs get them."""

import csv
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube.cli.sql_rows import RowStream, cell_text, plain, unique_names, write_rows

TABLE = pa.table(
    {
        "offset": pa.array([1, 2], pa.int64()),
        "time": pa.array([datetime(2026, 1, 31, 12, 0, 0, 123_000, UTC), None], pa.timestamp("us", "UTC")),
        "attributes": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
        "payload": pa.array([b"text, \xc3\xa4", b"\xff\x00"], pa.binary()),
    }
)


def test_json_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(TABLE, "json", None)
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"offset": 1, "time": "2026-01-31T12:00:00.123000Z", "attributes": {"a": "1"}, "payload": "text, ä"},
        {"offset": 2, "time": None, "attributes": None, "payload": {"base64": "/wA="}},
    ]


def test_csv_quotes_what_needs_it(tmp_path: Path) -> None:
    write_rows(TABLE, "csv", tmp_path / "rows.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "rows.csv").read_text())))
    assert rows[0] == TABLE.column_names
    assert rows[1] == ["1", "2026-01-31T12:00:00.123000Z", '{"a": "1"}', "text, ä"]
    assert rows[2][1:3] == ["", ""]


def test_parquet_keeps_types(tmp_path: Path) -> None:
    write_rows(TABLE, "parquet", tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").equals(TABLE)


def test_a_table_in_a_pipe_is_as_wide_as_its_rows(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(pa.table({"long": ["x" * 300], "markup": ["[red]:smile:"]}), "table", None)
    shown = capsys.readouterr().out
    assert "x" * 300 in shown
    assert "[red]:smile:" in shown


def test_columns_of_one_name_are_told_apart(tmp_path: Path) -> None:
    assert unique_names(["a", "b", "a", "a_2", "a"]) == ["a", "b", "a_2", "a_2_2", "a_3"]
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    write_rows(twice, "json", tmp_path / "rows.json")
    assert json.loads((tmp_path / "rows.json").read_text()) == {"a": 1, "a_2": 2}


@pytest.mark.parametrize("output", ["csv", "table"])
def test_a_stream_names_its_columns_once(capsys: pytest.CaptureFixture[str], output: str) -> None:
    stream = RowStream(output)
    stream.write(pa.table({"n": [1, 2]}))
    stream.write(pa.table({"n": [3]}))
    assert capsys.readouterr().out.split() == ["n", "1", "2", "3"]


def test_values_json_does_not_know() -> None:
    assert plain([float("nan"), Decimal("1.50"), date(2026, 1, 31), (1,)]) == [
        "nan",
        "1.50",
        "2026-01-31",
        [1],
    ]


def test_a_cell_is_one_line_of_bounded_length() -> None:
    assert cell_text("a\nb") == "a b"
    assert cell_text(None) == "null"
    assert cell_text("x" * 1_000).endswith("x…")
    assert cell_text(b"\xff\xfe") == "<2 bytes, not text>"
    assert cell_text({"a": [1, None]}) == '{"a": [1, null]}'
