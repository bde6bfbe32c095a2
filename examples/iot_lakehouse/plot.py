"""A picture of the readings, hour by hour."""

from pathlib import Path

import matplotlib as mpl
import pandas as pd

mpl.use("agg")

import matplotlib.pyplot as plt

PANELS = {"temperature": "°C", "kilowatts": "kW", "humidity": "% humidity"}


def draw(hours: pd.DataFrame, file: Path) -> None:
    figure, panels = plt.subplots(len(PANELS), 1, figsize=(10, 8), sharex=True, layout="constrained")
    for panel, (column, label) in zip(panels, PANELS.items(), strict=True):
        for site, rows in hours.groupby("site"):
            panel.plot(rows["hour"], rows[column], label=site)
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    panels[0].legend(ncols=4, loc="upper left")
    panels[0].set_title("Rooms by the Danube, each hour; humidity since firmware 2")
    figure.savefig(file, dpi=110)
    plt.close(figure)
