"""`danube pipeline`: check, test and run pipelines from files, and look after those that run."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.failures import INTERRUPTED
from pydanube.cli.pipeline_progress import progress_shown
from pydanube.cli.spark_options import SparkJob, spark_options
from pydanube.cli.spark_progress import status_line
from pydanube.cli.tables import age_text, output_option, show_document, show_facts, show_rows, time_text
from pydanube.kernel.errors import DanubeError

if TYPE_CHECKING:
    from pydanube.spark.connection import Connection
    from pydanube.spark.pipelines.cases import CaseResult
    from pydanube.spark.pipelines.checked_yaml import Problem
    from pydanube.spark.pipelines.document import Pipeline
    from pydanube.spark.pipelines.run_state import RunDirectory, RunningRecord, RunRecord
    from pydanube.spark.session import SparkSettings

_SMALL: Final = {
    "spark.sql.shuffle.partitions": "8",
    "spark.driver.memory": "2g",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""On one machine, tasks cost more than the rows in them."""
_TASK_FAILURES_MAX: Final = 4
_NONE_RAN: Final = "no pipeline has run here"

file_argument = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
state_option = click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="DANUBE_PIPELINE_STATE",
    show_envvar=True,
    help="Where runs and checkpoints are kept; $XDG_STATE_HOME/danube/pipelines by default.",
)


@click.group()
def pipeline() -> None:
    """Check, test and run pipelines: source, decode, steps and sink in a YAML file."""


@pipeline.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@output_option
def check(files: tuple[Path, ...], output: str) -> None:
    """Look for everything that is wrong with files, without starting Spark.

    SQL is looked at for quotes and brackets only: `danube pipeline test` lets Spark read it.
    """
    from pydanube.spark.pipelines.loading import examine  # noqa: PLC0415 - slow to load

    found: dict[Path, Sequence[Problem]] = {}
    for file in files:
        try:
            _, found[file] = examine(file)
        except DanubeError as error:
            raise click.ClickException(error.text) from error
    wrong = any(not each.is_warning for problems in found.values() for each in problems)
    if output == "table":
        for file, problems in found.items():
            _show_problems(file, problems)
    else:
        show_document([_check_document(file, problems) for file, problems in found.items()], output)
    if wrong:
        raise SystemExit(1)


def _show_problems(file: Path, problems: "Sequence[Problem]") -> None:
    for problem in problems:
        click.secho(f"{file}: {problem}", fg="yellow" if problem.is_warning else "red", err=True)
    if all(problem.is_warning for problem in problems):
        click.secho(f"{file}: all is well", fg="green")


def _check_document(file: Path, problems: "Sequence[Problem]") -> dict[str, Any]:
    return {
        "file": str(file),
        "valid": all(problem.is_warning for problem in problems),
        "problems": [
            {
                "line": problem.line,
                "path": problem.path,
                "text": problem.text,
                "severity": "warning" if problem.is_warning else "error",
            }
            for problem in problems
        ],
    }


@pipeline.command()
@file_argument
@click.option("--case", "names", multiple=True, help="Run this test only; can be given several times.")
@output_option
@spark_options
def test(*, file: Path, names: tuple[str, ...], output: str, job: SparkJob) -> None:
    """Run the tests inside a file: its steps on rows of theirs, compared row by row.

    No broker is needed unless schemas come from its registry.
    """
    from pydanube.spark.pipelines.checked_yaml import unknown  # noqa: PLC0415
    from pydanube.spark.pipelines.loading import load_pipeline  # noqa: PLC0415

    made = load_pipeline(file)
    known = [case.name for case in made.tests]
    for name in names:
        if name not in known:
            raise click.ClickException(unknown("test", name, known))
    chosen = [case for case in made.tests if not names or case.name in names]
    if not chosen:
        raise click.ClickException(f"{file} has no tests: add some under `tests`, docs/pipelines.md says how")
    with status_line("starting Spark") as say:
        from pydanube.spark.pipelines.cases import run_case  # noqa: PLC0415 - loads Spark
        from pydanube.spark.pipelines.frames import Surroundings  # noqa: PLC0415
        from pydanube.spark.session import open_session  # noqa: PLC0415

        around = Surroundings(_connection(job, made), file.resolve().parent)
        spark = open_session(_settings(replace(job, master="local[2]"), made, libraries=()))
        results = []
        for case in chosen:
            say(f"running {case.name}")
            results.append(run_case(spark, made, case, around))
    _show_results(results, output)


def _show_results(results: "Sequence[CaseResult]", output: str) -> None:
    failed = sum(not result.has_passed for result in results)
    if output != "table":
        show_document([_result_document(result) for result in results], output)
    else:
        for result in results:
            click.secho(
                f"{'passed' if result.has_passed else 'FAILED'}  {result.name}",
                fg="red" if not result.has_passed else "green",
            )
            for line in _result_lines(result):
                click.echo(f"    {line}")
        click.echo(f"{len(results) - failed} passed, {failed} failed")
    if failed:
        raise SystemExit(1)


def _result_lines(result: "CaseResult") -> list[str]:
    return [
        *([] if result.error is None else [f"it did not run: {result.error}"]),
        *map(str, result.differences),
        *(f"quarantine: {each}" for each in result.quarantine_differences),
    ]


def _result_document(result: "CaseResult") -> dict[str, Any]:
    return {"name": result.name, "passed": result.has_passed, "differences": _result_lines(result)}


@pipeline.command()
@file_argument
@click.option("--once", is_flag=True, help="End when everything is written that was there at the beginning.")
@click.option(
    "--checkpoint", help="A directory or address; the file's, or one in the state directory by default."
)
@state_option
@output_option
@spark_options
def run(
    *, file: Path, once: bool, checkpoint: str | None, state_dir: Path | None, output: str, job: SparkJob
) -> None:
    """Run a pipeline until Ctrl-C, SIGTERM or `danube pipeline stop`, each of which lets the batch under way end.

    It goes on where the last run ended, whatever that one ended by. While no broker answers, or tasks fail, it tries
    again for half an hour.
    """
    from pydanube.spark.pipelines.loading import load_pipeline  # noqa: PLC0415 - slow to load
    from pydanube.spark.pipelines.run_state import RunRecord  # noqa: PLC0415

    made = load_pipeline(file)
    if job.master.startswith("sc://"):
        raise click.ClickException(
            "pipelines write their batches from the process that runs them, which Spark Connect does not allow: "
            "give the address of the cluster itself as --master"
        )
    directory = _directory(state_dir)
    place = checkpoint or made.checkpoint or str(directory.checkpoint(made.name).resolve())
    record = RunRecord(
        name=made.name,
        status="starting",
        pid=os.getpid(),
        file=str(file.resolve()),
        master=job.master,
        checkpoint=place,
        started=time.time(),
    )
    with directory.claim(record) as running:
        try:
            was_stopped = _run(made, job, running, file.resolve().parent, once=once)
        except BaseException as error:
            running.update(status="failed", ended=time.time(), error=_reason(error))
            raise
        running.update(status="stopped" if was_stopped else "finished", ended=time.time(), error=None)
    if output != "table":
        show_document(_document(running.record), output)


def _run(made: "Pipeline", job: SparkJob, record: "RunningRecord", folder: Path, *, once: bool) -> bool:
    """Whether it was stopped, and did not end by itself."""
    with status_line("starting Spark"):
        from pydanube.spark.pipelines.frames import Surroundings  # noqa: PLC0415 - loads Spark
        from pydanube.spark.pipelines.running import Observer, RunSettings, run  # noqa: PLC0415
        from pydanube.spark.session import open_session  # noqa: PLC0415

        around = Surroundings(_connection(job, made), folder, job.store_options())
        spark = open_session(_settings(job, made, libraries=made.libraries))
    stop = Event()
    with _stopping(stop, record), progress_shown(made.name) as shown:
        record.update(status="running")

        def advanced(progress: Any) -> None:
            record.update(status="stopping" if stop.is_set() else "running", progress=progress, error=None)
            shown.advanced(progress)

        def waiting(why: str, seconds: float) -> None:
            record.update(status="waiting", error=why)
            shown.waiting(why, seconds)

        settings = RunSettings(
            checkpoint=record.record.checkpoint, once=once, stop=stop, observer=Observer(advanced, waiting)
        )
        outcome = run(spark, made, around, settings)
    if outcome.progress is not None:
        rows = f"{outcome.progress.rows:,} rows in {outcome.progress.batch + 1:,} batches"
        click.echo(f"{made.name}: {'stopped' if outcome.was_stopped else 'finished'}, read {rows}", err=True)
    return outcome.was_stopped


@contextmanager
def _stopping(stop: Event, record: "RunningRecord") -> Iterator[None]:
    """SIGINT and SIGTERM end the run after its batch; the second SIGINT at once."""

    def asked(number: int, frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise SystemExit(INTERRUPTED)
        stop.set()
        click.echo("stopping after this batch", err=True)

    before = {each: signal.signal(each, asked) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pipeline.command(name="list")
@state_option
@output_option
def list_(state_dir: Path | None, output: str) -> None:
    """The pipelines that run here or have run here."""
    records = _directory(state_dir).all()
    if not records and output == "table":
        click.echo(_NONE_RAN)
        return
    rows = [
        (
            each.status,
            "" if each.progress is None else f"{each.progress.rows:,}",
            _rate(each),
            _lag(each),
            time_text(each.started),
            each.name,
        )
        for each in records
    ]
    columns = ("status", "rows", "rows/s", "lag", "started", "pipeline")
    show_rows("Pipelines", columns, rows, [_document(each) for each in records], output)


@pipeline.command()
@click.argument("name")
@state_option
@output_option
def status(name: str, state_dir: Path | None, output: str) -> None:
    """What a pipeline is at, and how its last run ended."""
    try:
        record = _directory(state_dir).find(name)
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    progress = record.progress
    lines = [
        ("status", record.status),
        ("process", str(record.pid)),
        ("started", time_text(record.started)),
        ("ended", "" if record.ended is None else time_text(record.ended)),
        (
            "batches",
            ""
            if progress is None
            else f"{progress.batch + 1:,}, the last {age_text(progress.batch_seconds)} long",
        ),
        ("rows read", "" if progress is None else f"{progress.rows:,}, {_rate(record)} a second"),
        ("lag", _lag(record)),
        ("last progress", "" if progress is None else time_text(progress.at)),
        ("error", record.error or ""),
        ("master", record.master),
        ("checkpoint", record.checkpoint),
        ("file", record.file),
    ]
    show_facts(f"Pipeline {name}", [(key, text) for key, text in lines if text], _document(record), output)


@pipeline.command()
@click.argument("name")
@click.option(
    "--timeout",
    type=click.FloatRange(0),
    default=90.0,
    show_default=True,
    help="Seconds to wait for the end of its batch.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Kill it if it has not ended by then; its batch comes again with the next run.",
)
@state_option
@output_option
def stop(name: str, timeout: float, force: bool, state_dir: Path | None, output: str) -> None:
    """End a pipeline after the batch under way, and wait for that."""
    try:
        record = _directory(state_dir).stop(name, seconds=timeout, force=force)
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    if output != "table":
        show_document(_document(record), output)
    else:
        click.secho(f"pipeline {name} is {record.status}", fg="green")


def _directory(path: Path | None) -> "RunDirectory":
    from pydanube.spark.pipelines.run_state import RunDirectory, default_directory  # noqa: PLC0415

    return RunDirectory(path or default_directory())


def _connection(job: SparkJob, made: "Pipeline") -> "Connection":
    """Of the file, unless the command or the environment names a broker."""
    connection = job.connection()
    source = click.get_current_context().get_parameter_source("broker")
    if made.broker is None or source is not click.core.ParameterSource.DEFAULT:
        return connection
    return replace(connection, url=made.broker)


def _settings(job: SparkJob, made: "Pipeline", *, libraries: Sequence[str]) -> "SparkSettings":
    from pydanube.spark.pipelines.environment import filled_all  # noqa: PLC0415

    # Without a number of its own, Spark here gives up with the first task that fails.
    master = job.master
    if master.startswith("local[") and "," not in master:
        master = f"{master.removesuffix(']')},{_TASK_FAILURES_MAX}]"
    with_packages = replace(job, master=master, packages=(*job.packages, *made.packages))
    config = {**(_SMALL if master.startswith("local") else {}), **filled_all(made.spark)}
    return with_packages.settings(libraries, config, app_name=f"danube pipeline {made.name}")


def _document(record: "RunRecord") -> Any:
    import msgspec  # noqa: PLC0415

    return msgspec.to_builtins(record)


def _rate(record: "RunRecord") -> str:
    return "" if record.progress is None else f"{record.progress.rows_per_second:,.0f}"


def _lag(record: "RunRecord") -> str:
    return "" if record.progress is None or record.progress.lag is None else f"{record.progress.lag:,}"


def _reason(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        return "interrupted"
    from pydanube.spark.failures import sentence  # noqa: PLC0415 - loads Spark

    return sentence(error)
