"""`danube erase`: messages of a key taken out of history, with proof."""

import click
import msgspec

from pydanube.cli.maintenance_job import (
    OUTCOME_COLUMNS,
    Maintenance,
    dry_run_option,
    end,
    maintenance_options,
    outcome_rows,
)
from pydanube.cli.named_value import NamedValue
from pydanube.cli.tables import show_rows
from pydanube.cli.topic_argument import topic_argument


@click.command()
@topic_argument
@click.option("--key", "keys", multiple=True, help="Routing key or compaction key; may be repeated.")
@click.option(
    "--where-attribute",
    "attributes",
    type=NamedValue("attribute"),
    multiple=True,
    help="Messages with this attribute go too; may be repeated.",
)
@click.option(
    "--seal/--no-seal",
    default=True,
    show_default=True,
    help="Seal what is not sealed first, so that nothing stays in the journal.",
)
@dry_run_option
@maintenance_options
def erase(
    *,
    topic: str,
    keys: tuple[str, ...],
    attributes: tuple[tuple[str, str], ...],
    seal: bool,
    dry_run: bool,
    work: Maintenance,
    output: str,
) -> None:
    """Remove all messages with a key from the history of TOPIC and of its partitions.

    Segments that hold such messages are written anew without them; old files, copies, memory and used-up journal files
    go at once. Then everything is read once more: the report has the checksums before and after and what was found,
    which must be nothing. Exit status 1 says that something is left, and what; run it again then.
    """
    if not keys and not attributes:
        raise click.UsageError("say what to erase: --key, or --where-attribute NAME=VALUE")
    with work.running("erase") as (target, watch):
        from pydanube.spark.maintenance import erasure  # noqa: PLC0415 - loads Spark

        settings = erasure.ErasureSettings(keys, attributes, seal, dry_run)
        report = erasure.erase(target, topic, settings, watch)
    if dry_run:
        title = f"{topic}: {report.removed:,} messages would be removed"
    else:
        title = (
            f"{topic}: {report.removed:,} messages removed, {report.old_files_removed:,} old files gone, "
            f"{report.found_afterwards:,} such messages found afterwards"
        )
    document = msgspec.to_builtins(report)
    show_rows(title, OUTCOME_COLUMNS, outcome_rows(report.groups), document, output)
    end(report.failures)
