"""A picture of a run: throughput over time, and latency by percentile."""

from pathlib import Path
from typing import Final

from pydanube.bench.report import Report
from pydanube.kernel.errors import Rejected

SUFFIXES: Final = (".png", ".svg")
_NINES: Final = (0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999)
_STEPS_PER_DECADE: Final = 20


def check_plot(path: Path) -> None:
    """Say before the run what would keep the picture from being drawn after it."""
    if path.suffix not in SUFFIXES:
        raise Rejected(f"--plot {path}: the name has to end in .png or .svg")
    if not path.absolute().parent.is_dir():
        raise Rejected(f"--plot {path}: there is no folder {path.absolute().parent}")
    try:
        import matplotlib.figure  # noqa: F401, PLC0415 - heavy, and only some have it
    except ImportError as error:
        raise Rejected("--plot needs matplotlib: pip install 'pydanube[bench]'") from error


def plot(report: Report, path: Path) -> None:
    # A figure without pyplot has no window system, and draws with Agg or as SVG by the file's name.
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    throughput, latency = figure.subplots(1, 2)
    measured = report.measured
    times, rates = zip(*(measured.messages_per_second() or [(0.0, 0.0)]), strict=True)
    throughput.step(times, rates, where="post", color="#1a7f5a")
    throughput.set(xlabel="seconds", ylabel="messages/s", title="throughput", ylim=(0, None))
    throughput.grid(alpha=0.3)

    shares = _shares(measured.messages)
    values_us = [value / 1000 for value in measured.percentiles_ns([100 * share for share in shares])]
    latency.plot([1 / (1 - share) for share in shares], values_us, color="#5b7fb5")
    latency.set(xscale="log", yscale="log", xlabel="percentile", ylabel="µs", title=report.latency_of)
    ticks = [nine for nine in _NINES if nine <= shares[-1]]
    latency.set_xticks([1 / (1 - nine) for nine in ticks], [f"{100 * nine:.7g} %" for nine in ticks])
    latency.minorticks_off()
    latency.title.set_fontsize("medium")
    latency.grid(alpha=0.3)

    plan = report.plan
    figure.suptitle(
        f"danube bench {report.command}: {measured.messages:,} × {plan.size:,} B, {plan.protocol.value}"
    )
    figure.savefig(path, dpi=120)


def _shares(messages: int) -> list[float]:
    """Shares at equal distances on a scale of nines, as far as the number of messages says something."""
    shares = [0.0]
    while 1 / (1 - shares[-1]) < max(messages, 10) and shares[-1] < _NINES[-1]:
        shares.append(1 - 10 ** (-len(shares) / _STEPS_PER_DECADE))
    return shares
