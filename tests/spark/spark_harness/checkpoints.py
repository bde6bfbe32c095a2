"""Checkpoints of streaming queries, as they are when Spark dies at the wrong moment."""

from pathlib import Path


def forget_from(checkpoint: Path, batch: int) -> None:
    """As if Spark had been killed after its sinks had this batch, and before the checkpoint knew."""
    for kind, first in (("commits", batch), ("offsets", batch + 1)):
        for file in (checkpoint / kind).glob("[0-9]*"):
            if int(file.name) >= first:
                file.unlink()
                (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
