"""`danube lakehouse`: topics as Iceberg and Delta tables."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.lakehouse_options import table_options
from pydanube.cli.named_value import NamedValue
from pydanube.cli.spark_options import SparkJob, spark_options
from pydanube.cli.spark_progress import Say, status_line, tasks_shown
from pydanube.cli.tables import output_option, show_done, show_facts, show_record, show_rows, time_text
from pydanube.cli.topic_argument import topic_argument

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydanube.spark.decoding import SchemaSource
    from pydanube.spark.lakehouse.catalogs import TablePlace
    from pydanube.spark.lakehouse.sync import LakehouseSync, Outcome, SyncOptions

_CONFIG: Final = {"spark.databricks.delta.snapshotPartitions": "4"}
"""Delta rebuilds the state of a table in 50 tasks otherwise, whatever its size."""


@click.group()
def lakehouse() -> None:
    """Keep topics as Iceberg or Delta tables, exactly once."""


@lakehouse.command()
@topic_argument
@table_options
@click.option("--once", is_flag=True, help="End when everything that is there is in the table.")
@click.option("--raw", is_flag=True, help="Keep payloads as they are, instead of a column for each field.")
@click.option("--subject", help="Schema subject of the payloads; that of the topic if not given.")
@click.option(
    "--schema-version", type=click.IntRange(1), help="Version whose fields are the columns; the latest."
)
@click.option(
    "--schema-file",
    type=click.Path(exists=True, dir_okay=False),
    help="A schema from a file, with --schema-type.",
)
@click.option(
    "--schema-type", type=click.Choice(["json_schema", "avro", "protobuf"]), help="Of --schema-file."
)
@click.option(
    "--from", "start", type=click.Choice(["earliest", "latest"]), default="earliest", show_default=True,
    help="Where a new table begins.",
)  # fmt: skip
@click.option(
    "--commit-interval", type=click.FloatRange(0.1), default=60.0, show_default=True, metavar="SECONDS",
    help="Time between commits when the table is up to date.",
)  # fmt: skip
@click.option(
    "--commit-rows",
    type=click.IntRange(1),
    default=1_000_000,
    show_default=True,
    help="Messages in a commit at most.",
)
@click.option(
    "--commit-bytes", type=click.IntRange(1), default=256 << 20, show_default=True,
    help="Payload bytes in a commit, about.",
)  # fmt: skip
@click.option(
    "--partition-by", multiple=True, metavar="EXPRESSION",
    help="Of a new table: a column, or days(_append_time) and the like. May be given several times.",
)  # fmt: skip
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="Order of rows in the files of a new table.")
@click.option(
    "--property", "properties", type=NamedValue("property"), multiple=True, help="A property of a new table."
)
@click.option(
    "--on-error", type=click.Choice(["quarantine", "fail"]), default="quarantine", show_default=True,
    help="What becomes of messages that do not fit the schema: into TABLE_quarantine, or stop.",
)  # fmt: skip
@click.option(
    "--on-incompatible", type=click.Choice(["stop", "new-column"]), default="stop", show_default=True,
    help="What becomes of a column whose type changes so that it cannot be widened.",
)  # fmt: skip
@click.option(
    "--on-loss", type=click.Choice(["stop", "skip"]), default="stop", show_default=True,
    help="What to do about messages that retention deleted before they were in the table.",
)  # fmt: skip
@click.option("--compact-every", type=click.IntRange(1), metavar="COMMITS", help="Join small files so often.")
@click.option(
    "--expire-hours",
    type=click.FloatRange(0),
    help="Forget older versions of the table each time it is compacted.",
)
@click.option("--dry-run", is_flag=True, help="Tell what would be committed next; change nothing.")
@output_option
@spark_options
def sync(*, job: SparkJob, topic: str, place: "TablePlace", output: str, **given: Any) -> None:
    """Keep a table up to date with TOPIC: first all its history, then what comes, until Ctrl-C.

    \b
    danube lakehouse sync /default/orders --table ./lake/sales/orders
    danube lakehouse sync /default/orders --format delta --table ./lake/orders --once
    danube lakehouse sync /default/orders --catalog rest --uri https://catalog --table sales.orders

    The table itself remembers what it holds: each commit carries its offsets. Start the command anywhere, kill it
    anytime, run it twice: no message is missing and none is there twice.
    """
    schemas = _schemas(job, topic, given)
    options = _options(job, given)
    with _session(job, place) as (spark, say):
        from pydanube.spark.lakehouse.pacing import Pace, SyncRun  # noqa: PLC0415
        from pydanube.spark.lakehouse.sync import LakehouseSync  # noqa: PLC0415

        keeps_bad = schemas is not None and given["on_error"] == "quarantine"
        work = LakehouseSync(
            spark,
            job.connection(),
            topic,
            place.open(spark, given["sort_by"]),
            schemas=schemas,
            quarantine=place.beside("_quarantine").open(spark) if keeps_bad else None,
            options=options,
        )
        if given["dry_run"]:
            _show_plan(work, place, output)
            return
        totals = _Totals(topic, place.table, output, say, live=not given["once"])
        pace = Pace(given["commit_interval"], given["compact_every"], given["expire_hours"])
        with _stopping() as stop, tasks_shown(spark, say):
            run = SyncRun(work, pace, wait=stop.wait, told=totals.add)
            try:
                run.once() if given["once"] else run.forever()
            finally:
                work.close()
    totals.show()


@lakehouse.command()
@table_options
@click.option("--limit", type=click.IntRange(1), default=10, show_default=True, help="Commits shown.")
@output_option
@spark_options
def status(*, job: SparkJob, place: "TablePlace", limit: int, output: str) -> None:
    """Show how far a table is: its last commits, their offsets, and the lag behind the topic."""
    with _session(job, place) as (spark, _):
        from pydanube.spark.lakehouse.status import look_at  # noqa: PLC0415

        found = look_at(job.connection(), place.open(spark), limit)
    rows = [
        (
            f"{each['commit']:,}",
            each["version"],
            time_text(each["committed_ms"] / 1000),
            f"{each['messages']:,}",
            f"{each['quarantined']:,}",
            ", ".join(
                f"{name} {each['start'].get(name, 0):,}–{end - 1:,}"
                for name, end in each["end"].items()
                if end > each["start"].get(name, 0)
            ),
        )
        for each in found["commits"]
    ]
    title = f"{found['table']}: {found['topic']}, {found['lag']:,} messages behind"
    show_rows(title, ("commit", "version", "at (UTC)", "messages", "bad", "offsets"), rows, found, output)


@lakehouse.command()
@table_options
@click.option("--expire-hours", type=click.FloatRange(0), help="Forget older versions of the table too.")
@output_option
@spark_options
def compact(*, job: SparkJob, place: "TablePlace", expire_hours: float | None, output: str) -> None:
    """Join the small files of a table, while a sync of it may go on."""
    with _session(job, place) as (spark, say), tasks_shown(spark, say):
        from pydanube.spark.lakehouse.maintenance import tidy  # noqa: PLC0415

        done = tidy(place.open(spark), expire_hours)
    document = {"table": place.table, "files_before": done.files_before, "files_after": done.files_after}
    show_done(f"{place.table}: {done.files_before:,} files became {done.files_after:,}", document, output)


@lakehouse.command()
@topic_argument
@table_options
@click.option("--dry-run", is_flag=True, help="Tell which segments would be added; change nothing.")
@output_option
@spark_options
def register(*, job: SparkJob, topic: str, place: "TablePlace", dry_run: bool, output: str) -> None:
    """Add the segments of TOPIC to an Iceberg table as they are, without copying; run it again for later ones.

    The table reads the files of the broker: when retention deletes a segment, the table has a hole that fails readers.
    Keep messages of such topics, or run `sync`, which copies.
    """
    if place.format != "iceberg":
        raise click.UsageError("only Iceberg tables take files as they are: use --format iceberg, or `sync`")
    with _session(job, place) as (spark, say):
        from pydanube.spark.lakehouse.register import register_segments  # noqa: PLC0415

        say("adding segments")
        done = register_segments(spark, job.connection(), topic, place, dry_run=dry_run)
    document = {
        "topic": topic,
        "table": place.table,
        "segments": done.segments,
        "messages": done.messages,
        "end": dict(done.end),
        "dry_run": dry_run,
    }
    verb = "would be added" if dry_run else "added"
    show_done(
        f"{done.segments:,} segments with {done.messages:,} messages {verb} to {place.table}",
        document,
        output,
    )


@contextmanager
def _session(job: SparkJob, place: "TablePlace") -> "Iterator[tuple[SparkSession, Say]]":
    with status_line("starting Spark") as say:
        from pydanube.spark.session import open_session  # noqa: PLC0415 - loads Spark

        job = replace(job, packages=(*job.packages, *place.packages))
        config = {**_CONFIG, **place.spark_config()}
        spark = open_session(job.settings(place.libraries, config, app_name="danube lakehouse"))
        say("looking at the table")
        yield spark, say


@contextmanager
def _stopping() -> Iterator[Event]:
    """Set by SIGTERM and Ctrl-C; a commit under way is made to its end, unless either comes twice."""
    stop = Event()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def ask(number: int, frame: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _schemas(job: SparkJob, topic: str, given: Mapping[str, Any]) -> "SchemaSource | None":
    from pydanube.spark.decoding import FileSchemas, RegistrySchemas  # noqa: PLC0415 - loads Spark

    if (given["schema_file"] is None) != (given["schema_type"] is None):
        raise click.UsageError("--schema-file and --schema-type go together")
    if given["raw"]:
        return None
    if given["schema_file"] is not None:
        return FileSchemas(given["schema_file"], given["schema_type"])
    return RegistrySchemas(job.connection(), given["subject"], topic, given["schema_version"])


def _options(job: SparkJob, given: Mapping[str, Any]) -> "SyncOptions":
    from pydanube.spark.lakehouse.stretches import CommitBounds  # noqa: PLC0415
    from pydanube.spark.lakehouse.sync import SyncOptions  # noqa: PLC0415
    from pydanube.spark.lakehouse.table import Layout  # noqa: PLC0415

    return SyncOptions(
        start=given["start"],
        bounds=CommitBounds(given["commit_rows"], given["commit_bytes"]),
        layout=Layout(given["partition_by"], given["sort_by"], dict(given["properties"])),
        on_error=given["on_error"],
        on_incompatible=given["on_incompatible"],
        on_loss=given["on_loss"],
        store=job.store_options(),
    )


def _show_plan(work: "LakehouseSync", place: "TablePlace", output: str) -> None:
    progress, stretch, lag = work.plan()
    ranges = {name: [one.start, one.stop] for name, one in stretch.ranges.items()}
    document = {"table": place.table, "position": dict(progress.position), "next": ranges, "lag": lag}
    lines = [
        (
            "holds",
            ", ".join(f"{name} to {end - 1:,}" for name, end in progress.position.items()) or "nothing",
        ),
        ("behind", f"{lag:,} messages"),
        (
            "next commit",
            ", ".join(f"{name} {one[0]:,}–{one[1] - 1:,}" for name, one in ranges.items()) or "none",
        ),
    ]
    show_facts(place.table, lines, document, output)


class _Totals:
    """What a run has done."""

    def __init__(self, topic: str, table: str, output: str, say: Say, *, live: bool) -> None:
        self._topic, self._table, self._output, self._say, self._live = topic, table, output, say, live
        self._commits = self._messages = self._quarantined = self._lag = 0
        self._end: dict[str, int] = {}

    def add(self, outcome: "Outcome") -> None:
        self._lag = outcome.lag
        commit = outcome.commit
        if commit is not None:
            self._commits += 1
            self._messages += commit.messages
            self._quarantined += commit.quarantined
            self._end = dict(commit.end)
            if self._live and self._output != "table":
                show_record(self._document(), self._output)
        self._say(f"{self._messages:,} messages in {self._commits:,} commits, {self._lag:,} behind")

    def show(self) -> None:
        if self._live and self._output != "table":
            return
        bad = f", {self._quarantined:,} of them in quarantine" if self._quarantined else ""
        text = (
            f"{self._table}: {self._messages:,} messages of {self._topic} in {self._commits:,} commits{bad}"
        )
        show_done(text, self._document(), self._output)

    def _document(self) -> dict[str, Any]:
        return {
            "topic": self._topic,
            "table": self._table,
            "commits": self._commits,
            "messages": self._messages,
            "quarantined": self._quarantined,
            "lag": self._lag,
            "end": self._end,
        }
