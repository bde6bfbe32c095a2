"""The worked example does what it says: what the devices sent is counted again by programs that know nothing of us."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

EXAMPLE = Path(__file__).parents[3] / "examples" / "iot_lakehouse"
DEVICES, HOURS = 40, 24
SECONDS_MAX = 280

pytestmark = pytest.mark.timeout(SECONDS_MAX + 20)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, Any] | None]]:
    """Each reading with its device, None where it cannot be a row; simulated once more, it is the same."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    import devices  # type: ignore[import-not-found]

    monkeypatch.delitem(sys.modules, "devices")
    every = devices.make_devices(DEVICES)
    tables = [
        *devices.readings(every, 0, HOURS // 2, firmware=1),
        *devices.readings(every, HOURS // 2, HOURS, firmware=2),
    ]
    rows = (row for table in tables for row in table.to_pylist())
    return [(row["routing_key"], _good(row["payload"])) for row in rows]


def _good(payload: bytes) -> dict[str, Any] | None:
    try:
        reading: dict[str, Any] = json.loads(payload)
    except ValueError:
        return None
    is_right = isinstance(reading["temperature"], float) and reading["measured_at"] != "never"
    return reading if is_right else None


@pytest.fixture
def result(tmp_path: Path) -> tuple[Path, str]:
    """The folder the example leaves, and what it printed."""
    out = tmp_path / "result"
    done = subprocess.run(
        [
            sys.executable, str(EXAMPLE / "run.py"),
            "--devices", str(DEVICES), "--hours", str(HOURS), "--out", str(out),
        ],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5_000:] + done.stdout[-2_000:]
    return out, done.stdout


def rows_of(out: Path, table: str) -> pa.Table:
    metadata = (out / "lake" / "iot" / table / "metadata").glob("v*.metadata.json")
    newest = max(metadata, key=lambda path: int(path.name.split(".")[0][1:]))
    return StaticTable.from_metadata(newest.as_uri()).scan().to_arrow()


def test_the_example_ends_with_every_reading_in_the_table_or_in_quarantine(
    sent: list[tuple[str, dict[str, Any] | None]], result: tuple[Path, str]
) -> None:
    out, printed = result
    good = [reading for _, reading in sent if reading is not None]
    bad = [offset for offset, (_, reading) in enumerate(sent) if reading is None]
    assert bad, "some readings have to be broken, or nothing is shown"

    readings = rows_of(out, "readings")
    count, temperature, with_humidity = duckdb.sql(
        "SELECT count(*), sum(temperature), count(humidity) FROM readings"
    ).fetchall()[0]
    assert count == len(good)
    assert temperature == pytest.approx(sum(reading["temperature"] for reading in good))
    assert with_humidity == sum("humidity" in reading for reading in good)
    assert sorted(readings["_offset"].to_pylist() + bad) == list(range(len(sent)))

    kept = rows_of(out, "readings_quarantine").sort_by("_offset")
    assert kept["_offset"].to_pylist() == bad
    assert kept["_routing_key"].to_pylist() == [sent[offset][0] for offset in bad]
    assert all(kept["_reason"].to_pylist())

    assert f"{len(sent):,} published = {len(good):,} in the table + {len(bad):,} in quarantine" in printed
    assert (out / "readings.png").read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in out.iterdir()} == {"lake", "readings.png"}
