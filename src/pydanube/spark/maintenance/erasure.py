"""Messages of a key taken out of a topic's history, and proof that nothing of them is left there."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pydanube.kernel.errors import Rejected
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE
from pydanube.spark.maintenance.rewrite_plan import plan_groups
from pydanube.spark.maintenance.rewriting import (
    RewriteJob,
    RewriteOutcome,
    Watch,
    planned,
    rewrite_groups,
    unwatched,
)
from pydanube.spark.maintenance.sealed_history import SealedHistory, Target
from pydanube.spark.maintenance.storage_calls import StorageCalls
from pydanube.spark.reading import read_topic
from pydanube.spark.source.segment_files import is_object

ERASED: Final = "erased"
SEGMENT_BYTES: Final = 1 << 40
"""A segment stays one, whatever its size."""
CRITERIA_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class ErasureSettings:
    keys: Sequence[str] = ()
    """Routing keys or compaction keys."""
    attributes: Sequence[tuple[str, str]] = ()
    """Names and values; a message that has one of them goes."""
    seal: bool = True
    """Seal what is not sealed first: only then nothing of it stays in the journal."""
    dry_run: bool = False

    def __post_init__(self) -> None:
        if not 0 < len(self.keys) + len(self.attributes) <= CRITERIA_MAX:
            raise Rejected(
                f"{len(self.keys) + len(self.attributes)} keys and attributes to erase by: 1 to {CRITERIA_MAX}"
            )

    @property
    def condition(self) -> Column:
        """Holds for the messages that are to go."""
        key = F.col("attributes").getItem(COMPACTION_KEY_ATTRIBUTE)
        found = [F.col("attributes").getItem(name) == value for name, value in self.attributes]
        if self.keys:
            wanted = list(self.keys)
            found += [F.col("routing_key").isin(wanted), key.isin(wanted)]
        return F.coalesce(reduce(or_, [F.coalesce(each, F.lit(False)) for each in found]), F.lit(False))


class ErasureReport(msgspec.Struct, kw_only=True):
    topic: str
    dry_run: bool
    removed: int = 0
    """Messages; in a dry run those that would be, as far as they are sealed."""
    groups: list[RewriteOutcome] = []
    """Of segments that held some, with checksums before and after."""
    copies_dropped: int = 0
    """Local files that held the same messages as segments do."""
    old_files_removed: int = 0
    old_files_left: list[str] = []
    found_afterwards: int = 0
    """By reading everything once more; 0 is the proof."""

    @property
    def failures(self) -> list[str]:
        failures = [each.error for each in self.groups if each.error]
        failures += [f"{place} is still there" for place in self.old_files_left]
        if self.found_afterwards and not self.dry_run:
            failures.append(
                f"{self.found_afterwards} messages are still in {self.topic}: they came meanwhile, or are not sealed; "
                "erase again"
            )
        return failures


def erase(target: Target, topic: str, settings: ErasureSettings, watch: Watch = unwatched) -> ErasureReport:
    """Rewrite the segments of a topic, and of all its partitions, that hold such messages; then look for them again.

    Raises:
        DanubeError: nothing was done. What failed for some segments is told in the report.
    """
    report = ErasureReport(topic=topic, dry_run=settings.dry_run)
    history = SealedHistory.of(target, topic)
    if settings.seal and not settings.dry_run:
        with StorageCalls(target.admin) as calls:
            for part in history.parts:
                calls.seal(part)
        history = SealedHistory.of(target, topic)
    found = _found(history, settings).persist()
    try:
        counts = history.count_by_segment(found)
        groups = plan_groups(history.parts, small_bytes=0, segment_bytes=0, changed=counts)
        if settings.dry_run:
            report.groups = [planned(group, counts) for group in groups]
        else:
            job = RewriteJob(target.admin, SEGMENT_BYTES, ERASED, target.store)
            report.groups = list(rewrite_groups(target.spark, job, groups, found, watch))
    finally:
        found.unpersist()
    report.removed = sum(each.removed for each in report.groups)
    if not settings.dry_run:
        _leave_nothing(history, report)
        report.found_afterwards = _count_left(target, topic, settings)
    return report


def _found(history: SealedHistory, settings: ErasureSettings) -> DataFrame:
    messages = history.messages(["routing_key", "attributes"])
    return messages.where(settings.condition).select("part", "offset")


def _leave_nothing(history: SealedHistory, report: ErasureReport) -> None:
    """Remove what holds the old messages beside segments, and see that the old files are gone."""
    replaced = {name for each in report.groups if not each.error for name in each.old}
    with StorageCalls(history.target.admin) as calls:
        for part in history.parts:
            dropped = calls.drop_copies(part)
            report.copies_dropped += dropped.runs
            report.old_files_removed += dropped.replaced_files
    places = [
        each.place
        for segments in history.parts.values()
        for each in segments
        if each.descriptor.segment_id in replaced
    ]
    report.old_files_left = [place for place in places if not is_object(place) and Path(place).exists()]


def _count_left(target: Target, topic: str, settings: ErasureSettings) -> int:
    """Everything there is, sealed or not, read once more."""
    columns = ["routing_key", "attributes"]
    rows = read_topic(target.spark, topic, connection=target.connection, columns=columns, store=target.store)
    return rows.where(settings.condition).count()
