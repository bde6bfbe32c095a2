"""The writes a back end performs, as values: what `memory` applies, `sqlite` commits in groups and a log replicates."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydanube.metadata.store import Change, Compare, LeaseId, Write


@dataclass(frozen=True, slots=True)
class Transact:
    compares: Sequence[Compare]
    writes: Sequence[Write]


@dataclass(frozen=True, slots=True)
class Grant:
    """Open a lease. It takes a revision of its own, which becomes the lease's id: never given twice."""

    ttl_ms: int


@dataclass(frozen=True, slots=True)
class Revoke:
    """Close a lease and delete its keys."""

    lease: LeaseId


Command = Transact | Grant | Revoke


@dataclass(frozen=True, slots=True)
class Outcome:
    """The revision after the command, and what it changed."""

    revision: int
    changes: tuple[Change, ...]
