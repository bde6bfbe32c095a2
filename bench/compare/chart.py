"""The headline figures as SVG bars, drawn by hand: messages a second of every contestant."""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from bench.chart import BAR_GAP, BAR_HEIGHT, BARS_WIDTH, TITLE_HEIGHT, VALUE_WIDTH, Bar
from bench.compare import samples
from bench.compare.contestants.contestant import Contestant, Durability
from bench.compare.workloads import LARGE, PRODUCERS, SMALL, catch_up_case, publish_case
from bench.results import Results

LABEL_WIDTH = 240
OURS_COLOUR = "#1a7f5a"
COLOURS = {Durability.SYNCED: "#5b7fb5", Durability.DEFAULT: "#c9b79c"}
GROUPS = (
    (
        f"Publish, {publish_case(SMALL, PRODUCERS[-1])}: messages a second",
        "publish",
        publish_case(SMALL, PRODUCERS[-1]),
    ),
    (
        f"Publish, {publish_case(LARGE, PRODUCERS[-1])}: messages a second",
        "publish",
        publish_case(LARGE, PRODUCERS[-1]),
    ),
    (f"Catch-up, {catch_up_case(SMALL)}: messages a second", "catchup", catch_up_case(SMALL)),
)


def draw(results: Results, contestants: dict[str, Contestant]) -> str:
    """Green is ours, blue syncs before every ack as ours does, sand does not."""
    parts: list[str] = []
    top = 0
    for title, workload, case in GROUPS:
        bars = [
            Bar(series.contestant, series.median(samples.rate))
            for series in results.scenario(workload)
            if series.case == case
        ]
        if bars:
            parts += _group(title, sorted(bars, key=lambda bar: -bar.value), top, contestants)
            top += TITLE_HEIGHT + len(bars) * (BAR_HEIGHT + BAR_GAP) + BAR_GAP
    width = LABEL_WIDTH + BARS_WIDTH + VALUE_WIDTH
    style = 'font-family="sans-serif" font-size="13" fill="#444"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top}" {style}>'
    return "\n".join([opening, '<rect width="100%" height="100%" fill="#fff"/>', *parts, "</svg>"]) + "\n"


def _group(title: str, bars: Sequence[Bar], top: int, contestants: dict[str, Contestant]) -> list[str]:
    longest = max(bar.value for bar in bars)
    parts = [f'<text x="8" y="{top + 20}" font-weight="bold">{escape(title)}</text>']
    for number, bar in enumerate(bars):
        y = top + TITLE_HEIGHT + number * (BAR_HEIGHT + BAR_GAP)
        length = max(2.0, bar.value / longest * BARS_WIDTH)
        who = contestants[bar.label]
        colour = OURS_COLOUR if who.peer == "danube" else COLOURS[who.durability]
        parts += [
            f'<text x="{LABEL_WIDTH - 8}" y="{y + 14}" text-anchor="end">{escape(bar.label)}</text>',
            f'<rect x="{LABEL_WIDTH}" y="{y}" width="{length:.0f}" height="{BAR_HEIGHT}" fill="{colour}"/>',
            f'<text x="{LABEL_WIDTH + length + 6:.0f}" y="{y + 14}">{bar.value:,.0f}</text>',
        ]
    return parts
