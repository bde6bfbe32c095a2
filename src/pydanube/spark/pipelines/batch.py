"""One batch of a query, by the names that sinks tell batches apart with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Batch:
    query: str
    """The same in all runs with one checkpoint."""
    run: str
    """No run tries a batch twice."""
    number: int
    is_first: bool
    """Of its run: only this one can have been written before."""
