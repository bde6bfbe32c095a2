"""What jobs on stored history have in common as commands: the admin port, a Spark session, a report, an end."""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.admin_connection import (
    ADMIN_PORT,
    AdminAddress,
    Command,
    NotReachable,
    admin_port_at,
    run_admin,
)
from pydanube.cli.progress import transfer_bar
from pydanube.cli.spark_options import SparkJob, spark_options
from pydanube.cli.spark_progress import status_line
from pydanube.cli.storage_admin import StorageAdmin
from pydanube.cli.tables import output_option, size_text
from pydanube.client.address import Address
from pydanube.kernel.errors import DanubeError, ErrorCode, Unavailable

if TYPE_CHECKING:
    from pydanube.spark.connection import Connection
    from pydanube.spark.maintenance.rewriting import RewriteOutcome, Watch
    from pydanube.spark.maintenance.sealed_history import Target

_SMALL: Final = {"spark.sql.shuffle.partitions": "16"}
_ANY_TOPIC: Final = "/default/any"
_UNITS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)(?:i?b)?", re.IGNORECASE)
_AGES: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_AGE: Final = re.compile(r"(\d+)\s*([smhd])", re.IGNORECASE)


class Size(click.ParamType[int]):
    """Bytes, or 64k, 128MiB, 2g."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _SIZE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no size: expected bytes, or a number with k, m or g", param, ctx)
        return int(found[1]) * _UNITS[found[2].lower()]


class Age(click.ParamType[timedelta]):
    """30s, 15m, 12h, 7d."""

    name = "age"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        if isinstance(value, timedelta):
            return value
        found = _AGE.fullmatch(str(value).strip())
        if found is None:
            self.fail(f"{value!r} is no age: expected a number with s, m, h or d, e.g. 7d", param, ctx)
        return timedelta(seconds=int(found[1]) * _AGES[found[2].lower()])


class Maintenance:
    """A job about to run; made by `maintenance_options`."""

    def __init__(self, job: SparkJob, admin: Address) -> None:
        self.admin_port = admin_port_at(admin)
        self._job = job

    @property
    def connection(self) -> "Connection":
        """The port of clients."""
        return self._job.connection()

    @contextmanager
    def running(self, title: str) -> "Iterator[tuple[Target, Watch]]":
        """Spark and the broker, and a bar for the bytes that are worked through."""
        from pydanube.spark.maintenance.sealed_history import Target  # noqa: PLC0415 - loads Spark
        from pydanube.spark.session import open_session  # noqa: PLC0415

        connection = self.connection
        with status_line("asking the broker") as say:
            # Before Spark, which takes seconds to start.
            run_admin(self._reach_admin_port())
            with connection.client():
                pass
            say("starting Spark")
            spark = open_session(self._job.settings(config=_SMALL, app_name=f"danube {title}"))
        with ExitStack() as bars:
            yield (
                Target(spark, connection, self._admin(connection), self._job.store_options()),
                lambda total: bars.enter_context(transfer_bar(title, total)),
            )

    async def _reach_admin_port(self) -> None:
        """Whatever it answers, it is there; only `Unavailable` says that it is not."""
        async with self.admin_port.connect() as admin:
            try:
                await StorageAdmin(admin).describe(_ANY_TOPIC)
            except Unavailable:
                raise
            except DanubeError as error:
                if error.code in (ErrorCode.CREDENTIALS_MISSING, ErrorCode.METHOD_UNKNOWN):
                    raise

    def _admin(self, connection: "Connection") -> "Connection":
        port = self.admin_port
        scheme = "https" if port.address.tls or port.credentials.wants_tls else "http"
        return replace(connection, url=f"{scheme}://{port.target}")


def maintenance_options(command: Command) -> Command:
    """The options of Spark, `--admin-addr` and `--output`; the command gets a `Maintenance` as `work`."""

    @click.option(
        "--admin-addr",
        type=AdminAddress(),
        envvar=["DANUBE_ADMIN_ADDR", "DANUBE_ADMIN_ENDPOINT"],
        show_envvar=True,
        default=f"127.0.0.1:{ADMIN_PORT}",
        show_default=True,
        help="Admin port of the broker.",
    )
    @spark_options
    @output_option
    @functools.wraps(command)
    def with_work(*, job: SparkJob, admin_addr: Address, **options: Any) -> Any:
        try:
            return command(work=Maintenance(job, admin_addr), **options)
        except Unavailable as error:
            raise NotReachable(error.text) from error

    return with_work


dry_run_option: Callable[[Command], Command] = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, change nothing."
)


def outcome_rows(groups: "Sequence[RewriteOutcome]") -> list[tuple[str, ...]]:
    """One line for each group of segments."""
    return [
        (
            f"{each.start_offset:,}",
            f"{each.end_offset:,}",
            f"{len(each.old):,}",
            f"{len(each.new):,}",
            f"{each.removed:,}",
            f"{size_text(each.size_before)} → {size_text(each.size_after)}",
            each.error or each.topic,
        )
        for each in groups
    ]


OUTCOME_COLUMNS: Final = (
    "first offset",
    "last offset",
    "segments",
    "became",
    "removed",
    "size",
    "topic, or what failed",
)


def end(failures: Sequence[str]) -> None:
    """Say what failed, and exit with 1 if anything did."""
    for failure in failures:
        click.secho(f"Error: {failure}", fg="red", err=True)
    if failures:
        raise SystemExit(1)
