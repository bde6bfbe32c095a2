"""Which table a `danube lakehouse` command is about."""

import functools
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.admin_connection import Command
from pydanube.cli.named_value import NamedValue

if TYPE_CHECKING:
    from pydanube.spark.lakehouse.catalogs import TablePlace

CATALOGS: Final = ("path", "hadoop", "rest", "sql", "hive", "glue", "session")


def table_options(command: Command) -> Command:
    """The options; the command gets them as `place`."""

    @click.option(
        "--table",
        required=True,
        help="A directory with --catalog path, otherwise a name such as sales.orders.",
    )
    @click.option(
        "--format", "format_", type=click.Choice(["iceberg", "delta"]), default="iceberg", show_default=True
    )
    @click.option(
        "--catalog",
        type=click.Choice(CATALOGS),
        default="path",
        show_default=True,
        envvar="DANUBE_CATALOG",
        show_envvar=True,
        help="What finds tables by their names. `session` is what Spark itself is set up with.",
    )
    @click.option(
        "--uri",
        envvar="DANUBE_CATALOG_URI",
        show_envvar=True,
        help="Of a catalog: https://… of rest, jdbc:… of sql, thrift://… of hive.",
    )
    @click.option(
        "--warehouse",
        envvar="DANUBE_CATALOG_WAREHOUSE",
        show_envvar=True,
        help="Where the catalog keeps new tables: a directory, s3a://bucket/…, or a name that it knows.",
    )
    @click.option(
        "--catalog-property",
        "catalog_properties",
        type=NamedValue("property"),
        multiple=True,
        help="Another property of the catalog, as Iceberg names it. Secrets are better set as DANUBE_CATALOG_TOKEN, "
        "_CREDENTIAL, _USER and _PASSWORD.",
    )
    @functools.wraps(command)
    def with_place(
        *,
        table: str,
        format_: str,
        catalog: str,
        uri: str | None,
        warehouse: str | None,
        catalog_properties: tuple[tuple[str, str], ...],
        **options: Any,
    ) -> Any:
        return command(
            place=_place(table, format_, (catalog, uri, warehouse, dict(catalog_properties))), **options
        )

    return with_place


def _place(
    table: str, format_: Any, catalog: tuple[str, str | None, str | None, dict[str, str]]
) -> "TablePlace":
    from pydanube.kernel.errors import Rejected  # noqa: PLC0415 - as the next one
    from pydanube.spark.lakehouse.catalogs import Catalog, TablePlace  # noqa: PLC0415 - slow to load

    try:
        return TablePlace(format_, table, Catalog(*catalog))
    except Rejected as error:
        raise click.UsageError(error.text) from error
