"""`danube replay TABLE`: the rows of a table, published into a topic."""

import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from pydanube.cli.spark_options import SparkJob, spark_options
from pydanube.cli.spark_progress import status_line, tasks_shown
from pydanube.cli.tables import output_option, show_done
from pydanube.cli.topic_argument import full_name

FORMATS: Final = ("parquet", "iceberg", "delta")

_CATALOG_NAME: Final = re.compile(r"\w+(\.\w+){1,3}")
_ADDRESS: Final = re.compile(r"(s3a?|gs|abfss?|hdfs|file)://.+|file:/.+")


def names_table(arguments: Sequence[str]) -> bool:
    """Whether the arguments of `danube replay` are about a table: they say its format, or begin with one."""
    if any(each == "--format" or each.startswith("--format=") for each in arguments):
        return True
    if not arguments or arguments[0].startswith("-"):
        return False
    first = arguments[0]
    return (
        _ADDRESS.fullmatch(first) is not None
        or _CATALOG_NAME.fullmatch(first) is not None
        or "*" in first
        or Path(first).exists()
    )


@click.command("replay")
@click.argument("table")
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Form of the table; without it Iceberg for names of a catalog, and for folders what is in them, or Parquet.",
)
@click.option(
    "--to", "target", required=True, metavar="TOPIC", help="Where to publish; made if it is not there."
)
@click.option("--payload", metavar="COLUMN", help="Column with the payload.  [default: the row as JSON]")
@click.option("--key", metavar="COLUMN", help="Column with the routing key.")
@click.option(
    "--attributes",
    metavar="COLUMN,…",
    default="",
    help="Columns that become attributes; of a map, its entries.",
)
@click.option("--where", metavar="CONDITION", help="Only rows for which this holds, in SQL.")
@click.option("--version", metavar="VERSION", help="Snapshot of an Iceberg table, version of a Delta table.")
@click.option("--partitions", type=click.IntRange(min=1), help="Of the topic, if it is made.")
@click.option(
    "--id",
    "write_id",
    metavar="NAME",
    help="Name of the job: run again with the same one, it publishes what is missing and nothing twice.",
)
@click.option("--dry-run", is_flag=True, help="Count the rows, publish nothing.")
@spark_options
@output_option
def replay_table(
    *,
    table: str,
    form: str | None,
    target: str,
    attributes: str,
    write_id: str | None,
    job: SparkJob,
    output: str,
    **options: Any,
) -> None:
    """Publish the rows of TABLE, a Parquet folder, an Iceberg or a Delta table, into a topic, each once."""
    form = form or format_of(table)
    name = write_id or f"replay-{secrets.token_hex(4)}"
    with status_line("starting Spark") as say:
        from pydanube.spark.maintenance import table_replay  # noqa: PLC0415 - loads Spark
        from pydanube.spark.session import open_session  # noqa: PLC0415

        replay = table_replay.TableReplay(
            table,
            table_replay.TableFormat(form),
            full_name(target),
            name,
            attributes=[column for column in attributes.split(",") if column],
            **options,
        )
        connection = job.connection()
        if not replay.dry_run:
            click.secho(f"if this is cut off, run it again with --id {name}", fg="yellow", err=True)
        libraries = [] if form == "parquet" else [form]
        spark = open_session(job.settings(libraries, app_name="danube replay"))
        say("publishing")
        with tasks_shown(spark, say):
            report = table_replay.replay_table(spark, connection, replay)
    words = "would be published" if report.dry_run else "published"
    show_done(
        f"{report.rows:,} rows {words}: {report.table} to {report.topic} (--id {report.write_id})",
        msgspec.to_builtins(report),
        output,
    )


def format_of(table: str) -> str:
    """By what is in the folder of that name, if it is one."""
    if (Path(table) / "_delta_log").is_dir():
        return "delta"
    if any((Path(table) / "metadata").glob("*.metadata.json")):
        return "iceberg"
    return "iceberg" if _CATALOG_NAME.fullmatch(table) and not Path(table).exists() else "parquet"
