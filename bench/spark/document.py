"""One run as it is shown and kept: tables, JSON with every sample, a part of docs/benchmarks.md and its picture."""

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pyspark

from bench import machine
from bench.chart import BAR_GAP, BAR_HEIGHT, TITLE_HEIGHT, VALUE_WIDTH
from bench.report import Table
from bench.results import Results, Series
from bench.servers import ROOT
from bench.spark.aims import YARDSTICKS, cpu_ratio, judge, speed_ratio

RESULTS_FOLDER = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "benchmarks-spark.svg"
BEGIN, END = "<!-- spark: begin -->\n", "<!-- spark: end -->\n"
LABEL_WIDTH = 220
BARS_WIDTH = 430
OURS_COLOUR, YARDSTICK_COLOUR = "#1a7f5a", "#c9b79c"


def surroundings(megabytes: int, rounds: int) -> dict[str, str]:
    known = machine.describe()
    kept = {key: known[key] for key in ("date", "commit", "machine", "load before", "Python")}
    kept["command"] = " ".join(["python", "-m", "bench.spark", *sys.argv[1:]])
    kept["Spark"] = f"PySpark {pyspark.__version__}, local[*]"
    kept["size"] = f"{megabytes:,} MiB of messages of 1 KiB, medians of {rounds} rounds"
    return kept


def tables(results: Results) -> list[Table]:
    columns = ["case", "who", "rows/s", "MB/s", "speed ÷ yardstick", "CPU µs/row", "CPU ÷ yardstick"]
    found = [
        Table(
            scenario.capitalize(), columns, [_row(results, series) for series in results.scenario(scenario)]
        )
        for scenario in YARDSTICKS
    ]
    verdicts = [
        [v.aim, v.outcome, f"≥ {v.limit:g}", f"{v.measured:.2f}", f"{v.at_best:.2f}"] for v in judge(results)
    ]
    found.append(Table("Aims on Spark", ["aim", "", "limit", "median", "best rounds"], verdicts))
    return [table for table in found if table.rows]


def _title(scenario: str) -> str:
    return scenario[0].upper() + scenario[1:]


def _row(results: Results, series: Series) -> list[str]:
    yardstick = results.find(series.scenario, series.case, YARDSTICKS[series.scenario])
    rate = series.median(lambda sample: sample.rate)
    is_compared = yardstick is not None and yardstick is not series
    return [
        series.case,
        series.contestant,
        f"{rate:,.0f}",
        f"{rate * 1024 / 1e6:,.0f}",
        f"{speed_ratio(series, yardstick):.2f}" if is_compared and yardstick else "",
        f"{series.median(lambda sample: sample.cpu_us):.2f}",
        f"{cpu_ratio(series, yardstick):.2f}" if is_compared and yardstick else "",
    ]


def as_json(around: Mapping[str, str], results: Results) -> dict[str, Any]:
    verdicts = [
        {"aim": v.aim, "limit": v.limit, "measured": v.measured, "at_best": v.at_best, "outcome": v.outcome}
        for v in judge(results)
    ]
    return {"machine": dict(around), "series": results.as_json(), "aims": verdicts}


def save(document: Mapping[str, Any]) -> Path:
    RESULTS_FOLDER.mkdir(exist_ok=True)
    path = RESULTS_FOLDER / f"spark-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def write_docs(around: Mapping[str, str], results: Results) -> None:
    """Into the part between the markers, which must be there."""
    lines = [f"- {key}: {value}" for key, value in around.items()]
    parts = ["![Rows a second on Spark](benchmarks-spark.svg)", "\n".join(lines)]
    parts += [table.as_markdown() for table in tables(results)]
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    DOCUMENT.write_text(f"{before}{BEGIN}\n" + "\n\n".join(parts) + f"\n\n{END}{after}")
    PICTURE.write_text(draw(results))


def draw(results: Results) -> str:
    """Bars of rows a second, case by case; sand is the yardstick."""
    parts: list[str] = []
    top = 0
    for scenario in YARDSTICKS:
        every = results.scenario(scenario)
        for case in dict.fromkeys(series.case for series in every):
            group = [series for series in every if series.case == case]
            parts += _bars(f"{_title(scenario)}, {case}: rows a second", group, top)
            top += TITLE_HEIGHT + len(group) * (BAR_HEIGHT + BAR_GAP) + BAR_GAP
    width = LABEL_WIDTH + BARS_WIDTH + VALUE_WIDTH
    style = 'font-family="sans-serif" font-size="13" fill="#444"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" {style}>'
    return "\n".join([opening, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _bars(title: str, group: Sequence[Series], top: int) -> list[str]:
    rates = {series.contestant: series.median(lambda sample: sample.rate) for series in group}
    longest = max(rates.values())
    yardstick = YARDSTICKS[group[0].scenario]
    parts = [f'<text x="8" y="{top + 20}" font-weight="bold">{escape(title)}</text>']
    for number, (label, rate) in enumerate(rates.items()):
        y = top + TITLE_HEIGHT + number * (BAR_HEIGHT + BAR_GAP)
        length = max(2.0, rate / longest * BARS_WIDTH)
        colour = YARDSTICK_COLOUR if label == yardstick else OURS_COLOUR
        parts += [
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>',
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{length:.0f}" height="{BAR_HEIGHT}" fill="{colour}"/>',
            f'<text x="{LABEL_WIDTH + length + 6:.0f}" y="{y + 14}">{rate:,.0f}</text>',
        ]
    return parts
