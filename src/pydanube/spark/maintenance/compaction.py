"""Small segments become large ones; of messages with the same key only the latest stays, if that is asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE
from pydanube.spark.maintenance.rewrite_plan import RewriteGroup, plan_groups
from pydanube.spark.maintenance.rewriting import (
    RewriteJob,
    RewriteOutcome,
    Watch,
    planned,
    rewrite_groups,
    unwatched,
)
from pydanube.spark.maintenance.sealed_history import SealedHistory, Target

COMPACTED: Final = "compacted"
MEBIBYTE: Final = 1 << 20


class KeyKind(StrEnum):
    """What makes messages versions of one thing."""

    COMPACTION_KEY = "compaction-key"
    ROUTING_KEY = "routing-key"


@dataclass(frozen=True, slots=True)
class CompactionSettings:
    small_bytes: int = 64 * MEBIBYTE
    """Neighbours smaller than this are merged."""
    segment_bytes: int = 128 * MEBIBYTE
    """As large as a merged segment becomes, about."""
    keep_latest: bool = False
    by: KeyKind = KeyKind.COMPACTION_KEY
    tombstones_older_than: timedelta | None = None
    """Messages without payload that are the last of their key go too once they are so old."""
    dry_run: bool = False


class CompactionReport(msgspec.Struct, kw_only=True):
    topic: str
    dry_run: bool
    segments_before: int = 0
    segments_after: int = 0
    """The same in a dry run."""
    size_before: int = 0
    """Of the segments that were, or would be, made anew."""
    size_after: int = 0
    """Of what they became; 0 in a dry run."""
    removed: int = 0
    """Messages; in a dry run those that would be."""
    groups: list[RewriteOutcome] = []

    @property
    def failures(self) -> list[str]:
        return [each.error for each in self.groups if each.error]


def compact(
    target: Target, topic: str, settings: CompactionSettings, watch: Watch = unwatched
) -> CompactionReport:
    """Make segments of a topic, and of all its partitions, anew; what is not sealed stays as it is.

    Raises:
        DanubeError: nothing was done. What failed for some segments is told in the report.
    """
    before = SealedHistory.of(target, topic)
    report = CompactionReport(
        topic=topic, dry_run=settings.dry_run, groups=_compact_once(before, settings, watch)
    )
    if settings.keep_latest and settings.tombstones_older_than is not None and not settings.dry_run:
        # What a tombstone deletes had to go first; until then it keeps older messages from coming back.
        report.groups += _compact_once(SealedHistory.of(target, topic), settings, watch)
    report.segments_before = before.segment_count
    report.segments_after = SealedHistory.of(target, topic).segment_count
    report.size_before = sum(each.size_before for each in report.groups)
    report.size_after = sum(each.size_after for each in report.groups)
    report.removed = sum(each.removed for each in report.groups)
    return report


def _compact_once(history: SealedHistory, settings: CompactionSettings, watch: Watch) -> list[RewriteOutcome]:
    if not settings.keep_latest:
        return _rewrite(history, settings, None, {}, watch)
    removals = _superseded(history, settings).persist()
    try:
        return _rewrite(history, settings, removals, history.count_by_segment(removals), watch)
    finally:
        removals.unpersist()


def _rewrite(
    history: SealedHistory,
    settings: CompactionSettings,
    removals: DataFrame | None,
    counts: Mapping[str, int],
    watch: Watch,
) -> list[RewriteOutcome]:
    groups: list[RewriteGroup] = plan_groups(
        history.parts,
        small_bytes=settings.small_bytes,
        segment_bytes=settings.segment_bytes,
        changed=counts,
    )
    if settings.dry_run:
        return [planned(group, counts) for group in groups]
    target = history.target
    job = RewriteJob(target.admin, settings.segment_bytes, COMPACTED, target.store)
    return list(rewrite_groups(target.spark, job, groups, removals, watch))


def _superseded(history: SealedHistory, settings: CompactionSettings) -> DataFrame:
    """`part` and `offset` of messages that may go: a later one has the same key, or it is a tombstone."""
    age = settings.tombstones_older_than
    columns = ["append_time", "routing_key", "attributes", *([] if age is None else ["payload"])]
    keyed = history.messages(columns).withColumn("key", _key(settings.by)).where(F.col("key").isNotNull())
    of_key = Window.partitionBy("part", "key")
    ranked = keyed.withColumn("latest", F.max("offset").over(of_key))
    goes = F.col("offset") < F.col("latest")
    if age is not None:
        ranked = ranked.withColumn("messages", F.count("*").over(of_key))
        is_tombstone = (F.length("payload") == 0) & (F.col("append_time") < F.lit(datetime.now(UTC) - age))
        # Only one that stands alone: if it went first and the job was cut off, what it deletes would be back.
        goes = goes | (is_tombstone & (F.col("messages") == 1))
    return ranked.where(goes).select("part", "offset")


def _key(by: KeyKind) -> Column:
    if by is KeyKind.ROUTING_KEY:
        return F.col("routing_key")
    return F.col("attributes").getItem(COMPACTION_KEY_ATTRIBUTE)
