"""A small bar chart as SVG, drawn by hand: CPU per message of every contestant, on a log scale."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from bench import delivery, publish, servers
from bench.results import Results

BAR_HEIGHT = 18
BAR_GAP = 6
LABEL_WIDTH = 190
BARS_WIDTH = 460
VALUE_WIDTH = 90
TITLE_HEIGHT = 30
COLOURS = {
    servers.OURS: "#1a7f5a",
    servers.OURS_INTERPRETED: "#7fc8a9",
    servers.GRPC_GO: "#5b7fb5",
    servers.GRPCIO: "#b58a5b",
}


@dataclass(frozen=True, slots=True)
class Bar:
    label: str
    value: float


def draw(results: Results) -> str:
    """The two headline cases as one picture; empty when nothing was measured."""
    groups = [
        ("Unary publish, 4 connections × 16 in flight, 1 KiB", publish.SCENARIO, "4×16, 1024 B"),
        ("Stream delivery, 1 consumer, 1 KiB", delivery.SCENARIO, delivery.stream_case(1)),
    ]
    parts: list[str] = []
    top = 0
    for title, scenario, case in groups:
        bars = [
            Bar(series.contestant, series.median(lambda sample: sample.cpu_us))
            for series in results.scenario(scenario)
            if series.case == case
        ]
        if bars:
            parts += _group(f"{title}: server CPU-µs a message (log scale)", bars, top)
            top += TITLE_HEIGHT + len(bars) * (BAR_HEIGHT + BAR_GAP) + BAR_GAP
    width = LABEL_WIDTH + BARS_WIDTH + VALUE_WIDTH
    style = 'font-family="sans-serif" font-size="13" fill="#444"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" {style}>'
    return "\n".join([opening, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _group(title: str, bars: Sequence[Bar], top: int) -> list[str]:
    floor = 0.1
    decades = math.log10(max(bar.value for bar in bars) / floor)
    parts = [f'<text x="8" y="{top + 20}" font-weight="bold">{escape(title)}</text>']
    for number, bar in enumerate(sorted(bars, key=lambda bar: bar.value)):
        y = top + TITLE_HEIGHT + number * (BAR_HEIGHT + BAR_GAP)
        length = max(2.0, math.log10(max(bar.value, floor) / floor) / decades * BARS_WIDTH)
        colour = COLOURS.get(bar.label, "#888")
        parts += [
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{length:.0f}" height="{BAR_HEIGHT}" fill="{colour}"/>',
            f'<text x="{LABEL_WIDTH + length + 6:.0f}" y="{y + 14}">{bar.value:.1f}</text>',
        ]
    return parts
