"""One comparison as it is kept: JSON with every sample, and a part of docs/benchmarks.md between two markers."""

import dataclasses
import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine
from bench.compare import aims, chart, report
from bench.compare.contestants.contestant import Contestant
from bench.compare.turn import Findings
from bench.servers import ROOT

RESULTS_FOLDER = ROOT / "bench" / "results"
DOCUMENT = ROOT / "docs" / "benchmarks.md"
PICTURE = ROOT / "docs" / "benchmarks-peers.svg"
BEGIN, END = "<!-- peers: begin -->\n", "<!-- peers: end -->\n"
SECTION = f"\n## Against the peers\n\n{BEGIN}{END}"


def surroundings(versions: Mapping[str, str]) -> dict[str, str]:
    known = machine.describe()
    kept = {key: known[key] for key in ("date", "commit", "machine", "load before", "Python", "pydanube")}
    kept["command"] = " ".join(["python", "-m", "bench.compare", *sys.argv[1:]])
    kept["versions"] = "; ".join(dict.fromkeys(versions.values()))
    return kept


def as_json(
    around: Mapping[str, str], findings: Findings, contestants: Mapping[str, Contestant]
) -> dict[str, Any]:
    verdicts = [
        {"aim": v.aim, "limit": v.limit, "measured": v.measured, "at_best": v.at_best, "outcome": v.outcome}
        for v in aims.judge(findings.results, contestants)
    ]
    return {
        "machine": dict(around),
        "contestants": {name: contestant.settings for name, contestant in contestants.items()},
        "absences": [dataclasses.asdict(absence) for absence in findings.absences],
        "series": findings.results.as_json(),
        "aims": verdicts,
    }


def save(document: Mapping[str, Any]) -> Path:
    RESULTS_FOLDER.mkdir(exist_ok=True)
    path = RESULTS_FOLDER / f"compare-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path


def write_docs(around: Mapping[str, str], findings: Findings, contestants: dict[str, Contestant]) -> None:
    lines = [f"- {key}: {value}" for key, value in around.items()]
    found = report.tables(findings, contestants, lambda text: f"**{text}**")
    parts = ["![Messages a second](benchmarks-peers.svg)", "\n".join(lines)]
    parts += [table.as_markdown() for table in (*found, report.commands(findings.results))]
    DOCUMENT.write_text(between_markers(DOCUMENT.read_text(), "\n\n".join(parts)))
    PICTURE.write_text(chart.draw(findings.results, contestants))


def between_markers(text: str, part: str) -> str:
    """Put the part between the markers; a document without them gets a section at its end."""
    if BEGIN not in text:
        text += SECTION
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{part}\n\n{END}{after}"
