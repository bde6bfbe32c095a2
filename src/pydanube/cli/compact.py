"""`danube compact`: small segments merged, and only the latest message of each key kept."""

from datetime import timedelta

import click
import msgspec

from pydanube.cli.maintenance_job import (
    OUTCOME_COLUMNS,
    Age,
    Maintenance,
    Size,
    dry_run_option,
    end,
    maintenance_options,
    outcome_rows,
)
from pydanube.cli.tables import show_rows
from pydanube.cli.topic_argument import topic_argument


@click.command()
@topic_argument
@click.option(
    "--min-size",
    type=Size(),
    default="64MiB",
    show_default=True,
    help="Neighbouring segments smaller than this are merged.",
)
@click.option(
    "--segment-size", type=Size(), default="128MiB", show_default=True, help="As large as they become, about."
)
@click.option(
    "--keep-latest", is_flag=True, help="Of messages with the same key keep the latest, remove the others."
)
@click.option(
    "--by",
    type=click.Choice(["compaction-key", "routing-key"]),
    default="compaction-key",
    show_default=True,
    help="Which key --keep-latest goes by; messages without one stay.",
)
@click.option(
    "--tombstones-older-than",
    type=Age(),
    help="With --keep-latest, remove messages without payload too that are the last of their key and so old.",
)
@dry_run_option
@maintenance_options
def compact(
    *,
    topic: str,
    min_size: int,
    segment_size: int,
    keep_latest: bool,
    by: str,
    tombstones_older_than: timedelta | None,
    dry_run: bool,
    work: Maintenance,
    output: str,
) -> None:
    """Merge small neighbouring segments of TOPIC and of its partitions, in the order of offsets.

    Offsets stay as they are, also those of removed messages; what is not sealed is not touched. A job that was cut off
    is run again: what is done stays done. Old files go an hour later, for those who read them.
    """
    if tombstones_older_than is not None and not keep_latest:
        raise click.UsageError("--tombstones-older-than goes with --keep-latest")
    with work.running("compact") as (target, watch):
        from pydanube.spark.maintenance import compaction  # noqa: PLC0415 - loads Spark

        settings = compaction.CompactionSettings(
            small_bytes=min_size,
            segment_bytes=segment_size,
            keep_latest=keep_latest,
            by=compaction.KeyKind(by),
            tombstones_older_than=tombstones_older_than,
            dry_run=dry_run,
        )
        report = compaction.compact(target, topic, settings, watch)
    would = "would be " if dry_run else ""
    title = (
        f"{topic}: {report.segments_before:,} segments before, {report.segments_after:,} now; "
        f"{report.removed:,} messages {would}removed"
    )
    document = msgspec.to_builtins(report)
    show_rows(title, OUTCOME_COLUMNS, outcome_rows(report.groups), document, output)
    end(report.failures)
