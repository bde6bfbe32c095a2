"""`danube sql`: topics as tables, in one command."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Final, TextIO

import click

from pydanube.cli.positions import Start
from pydanube.cli.spark_options import SparkJob, spark_options
from pydanube.cli.spark_progress import Say, beside_ctrl_c, status_line, tasks_shown
from pydanube.cli.sql_rows import OUTPUTS, RowStream, write_rows
from pydanube.client.position import Position
from pydanube.kernel.errors import Rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pydanube.spark.sql import Start as Place

SHOWN_ROWS_MAX: Final = 1_000
_SMALL: Final = {"spark.sql.shuffle.partitions": "8", "spark.driver.memory": "2g"}
"""A query of one person: few tasks, each of which costs more than the rows in it."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for."""

    statement: str
    output: str
    to: Path | None
    limit: int | None
    """None: all rows."""
    follow: bool


@click.command()
@click.argument("statement", required=False)
@click.option(
    "-f", "--file", type=click.File(encoding="utf-8"), help="Read the statement from a file; - is stdin."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(OUTPUTS),
    default="table",
    show_default=True,
    help="A table for people; one JSON object a line, CSV or Parquet for programs.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all rows into a file.",
)
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="ROWS",
    help=f"Rows at most, 0 for all. Without it {SHOWN_ROWS_MAX:,} on the screen, all into a file or with --follow.",
)
@click.option("--follow", is_flag=True, help="Go on with new messages as they come, until Ctrl-C.")
@click.option(
    "--from", "start", type=Start(), help="First messages to look at; earliest, with --follow latest."
)
@click.option(
    "--until", "end", type=Start(), default="latest", show_default=True, help="Where to end, not included."
)
@click.option(
    "--decode/--raw",
    "typed",
    default=True,
    show_default=True,
    help="Columns for the fields of topics that follow a schema.",
)
@spark_options
def sql(
    *,
    statement: str | None,
    file: TextIO | None,
    output: str,
    to: Path | None,
    limit: int | None,
    follow: bool,
    start: Position | None,
    end: Position,
    typed: bool,
    job: SparkJob,
) -> None:
    """Query topics with the SQL of Spark: a name between backquotes that begins with / is a topic.

    \b
    danube sql 'SELECT offset, string(payload) FROM `/default/orders` ORDER BY offset DESC LIMIT 10'
    danube sql -o csv --to big.csv 'SELECT * FROM `/default/orders` WHERE amount > 100'
    danube sql --follow 'SELECT region, amount FROM `/default/orders` WHERE amount > 100'

    Columns are topic, partition, offset, publish_time, append_time, producer_name, routing_key, attributes, schema_id,
    schema_version and payload, then the fields of the topic's schema. Messages are found wherever they are, in sealed
    history or not; the statement sees those that were there when it began.
    """
    request = Request(_statement(statement, file), output, to, _limit(limit, to, follow=follow), follow)
    _check(request, job)
    _run(request, job, typed=typed, start=start, end=end)


def _statement(statement: str | None, file: TextIO | None) -> str:
    if (statement is None) == (file is None):
        raise click.UsageError("give a statement, or a file of one by -f")
    text = file.read() if file is not None else statement or ""
    if not text.strip():
        raise click.UsageError("the statement is empty")
    return text


def _limit(limit: int | None, to: Path | None, *, follow: bool) -> int | None:
    if limit is None:
        return None if follow or to is not None else SHOWN_ROWS_MAX
    return limit or None


def _check(request: Request, job: SparkJob) -> None:
    if request.output == "parquet" and request.to is None:
        raise click.UsageError("--output parquet needs --to FILE: nobody can read it on a screen")
    if request.follow and (request.to is not None or request.output == "parquet"):
        raise click.UsageError(
            "--follow prints rows as they come: to store them, use `danube lakehouse` or a pipeline"
        )
    if request.follow and job.is_remote:
        # Rows of a stream are handed over where it runs, and that is the server.
        raise click.UsageError("--follow cannot run on a Spark Connect server: use another --master")


def _run(request: Request, job: SparkJob, *, typed: bool, start: Position | None, end: Position) -> None:
    with status_line("asking the broker") as say:
        from pydanube.spark.session import open_session  # noqa: PLC0415 - loads Spark
        from pydanube.spark.sql import Tables, check_topics, query, topics_in  # noqa: PLC0415

        connection = job.connection()
        topics = topics_in(request.statement)
        # Before Spark, which takes seconds to start.
        with connection.client() as client:
            check_topics(client, topics)
        start = start or (Position("latest") if request.follow else Position("earliest"))
        tables = Tables(
            connection, typed, _place(start, topics), _place(end, topics), job.store_options(), request.follow
        )
        say("starting Spark")
        spark = open_session(job.settings(config={} if job.is_remote else _SMALL, app_name="danube sql"))
        say("running")
        if not request.follow:
            _show(spark, query(spark, request.statement, tables), request, say)
            return
        rows = query(spark, request.statement, tables)
    _follow(rows, request)


def _place(position: Position, topics: list[str]) -> "Place":
    match position.kind:
        case "offset":
            return dict.fromkeys(topics, position.value)
        case "timestamp":
            return datetime.fromtimestamp(position.value / 1000, UTC)
        case word:
            return word


def _show(spark: "SparkSession", rows: "DataFrame", request: Request, say: Say) -> None:
    limit = request.limit
    # One more than asked for tells whether there are more.
    rows = rows if limit is None else rows.limit(limit + 1)
    with tasks_shown(spark, say), beside_ctrl_c() as call:
        table = call(rows.toArrow).result()
    is_cut = limit is not None and table.num_rows > limit
    write_rows(table.slice(0, limit) if is_cut else table, request.output, request.to)
    if is_cut:
        click.secho(
            f"only the first {limit:,} rows: --limit ROWS shows more, --limit 0 all, --to FILE stores them",
            fg="yellow",
            err=True,
        )
    if request.to is not None:
        click.secho(f"{table.num_rows:,} rows written to {request.to}", fg="green", err=True)


def _follow(rows: "DataFrame", request: Request) -> None:
    """Print rows until there are enough of them, Ctrl-C, or an error."""
    if not rows.isStreaming:
        raise Rejected("--follow needs a statement that reads a topic")
    stream = RowStream(request.output)
    enough = Event()
    left = request.limit

    def show(batch: "DataFrame", number: int) -> None:
        nonlocal left
        table = (batch if left is None else batch.limit(left)).toArrow()
        stream.write(table)
        if left is not None:
            left -= table.num_rows
            if not left:
                enough.set()

    running = rows.writeStream.foreachBatch(show).outputMode("append").start()
    with beside_ctrl_c() as call:
        ended = call(running.awaitTermination)
        ended.add_done_callback(lambda ended: enough.set())
        try:
            enough.wait()
            if ended.done():
                ended.result()
        except KeyboardInterrupt:
            # Nothing was left undone: there is no end that it did not reach.
            pass
        finally:
            running.stop()
