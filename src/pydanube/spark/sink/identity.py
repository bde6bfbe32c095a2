"""Who writes: one attempt to write one batch of rows, and its writers by name."""

import re
from dataclasses import dataclass
from typing import NamedTuple

DRIVER = "driver"


class Session(NamedTuple):
    """A producer of some run of a write, as its name tells."""

    run: str
    writer: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """What all tasks that write the same rows at the same time have in common."""

    write: str
    """The streaming query, or the batch write: the same in all its runs."""
    run: str
    """Begins with the start of the query, or of the batch write. No run tries a batch twice."""
    batch: int
    has_ledger: bool
    """Whether a later run may have to go on where this one ends."""

    def producer_name(self, writer: str) -> str:
        """Not of the batch: brokers remember names for days, and a query writes many batches."""
        return f"{self.write}-r{self.run}-{writer}"

    def sessions(self, names: list[str]) -> dict[str, Session]:
        """Those of these producer names that belong to this write, in whichever run."""
        pattern = re.compile(rf"{re.escape(self.write)}-r([0-9a-f]+)-(t[0-9]+|{DRIVER})")
        found = ((name, pattern.fullmatch(name)) for name in names)
        return {name: Session(match[1], match[2]) for name, match in found if match is not None}


def task_writer(partition: int) -> str:
    """The name of the writer of a Spark partition."""
    return f"t{partition}"
