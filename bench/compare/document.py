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
METHOD = """\
`python -m bench.compare` (about two hours; `--quick` gives rough numbers in a quarter of one) does the same work on
NATS JetStream, Redis Streams, Kafka, RabbitMQ and our broker. `--only nats,danube` and `--workload publish,latency`
choose, `--write-docs` refreshes the part below.

- One server runs at a time, on loopback, started afresh with an empty folder on the same disk. Contestants take turns,
  round after round; shown are medians with the least and the most of all rounds, and ratios within this run only.
- *Synced* means on stable storage before the producer hears "ok", as ours is by default; *default* is the peer as it
  comes, except that Redis keeps an append-only file.
- Everyone may have 4,096 messages unconfirmed, all producers together, or what its own batching allows (Kafka, ours).
  Slices are sized by each contestant's own speed after it is warm.
- CPU is that of the server and its children, from the kernel's books, over the whole slice.
- Fan-out counts deliveries. Catch-up reads as many messages as fit into the given size at 1 KiB, for both sizes, without
  acks except on RabbitMQ's queues, which cannot be read without.
- Latency is counted from the moment a message was due, the first fifth of the messages left out. PerfTest (RabbitMQ's
  queues) counts from the moment of sending and gives percentiles second by second: shown is their mean, without the first.
  Kafka lingers 5 ms when publishing, 0 ms here.
- Topics are what a user would take: streams of Redis and RabbitMQ, topics of Kafka and ours, subjects of one NATS stream.
"""
SECTION = f"\n## Against the peers\n\n{METHOD}\n{BEGIN}{END}"


def surroundings(versions: Mapping[str, str]) -> dict[str, str]:
    known = machine.describe()
    kept = {key: known[key] for key in ("date", "commit", "machine", "load before", "Python")}
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
