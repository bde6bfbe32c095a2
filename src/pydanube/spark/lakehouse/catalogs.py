"""Where tables are: the catalogs of Iceberg, the paths of Delta, and what Spark must be told about them."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pydanube.kernel.errors import Rejected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydanube.spark.lakehouse.table import LakeTable

TableFormat = Literal["iceberg", "delta"]
FORMATS: Final = ("iceberg", "delta")
CATALOGS: Final = ("hadoop", "path", "rest", "sql", "hive", "glue", "session")

CREDENTIAL_VARIABLES: Final = {
    "token": "DANUBE_CATALOG_TOKEN",
    "credential": "DANUBE_CATALOG_CREDENTIAL",
    "jdbc.user": "DANUBE_CATALOG_USER",
    "jdbc.password": "DANUBE_CATALOG_PASSWORD",
}
"""Properties of catalogs that are better kept out of command lines."""

_SESSION_CATALOG: Final = "spark_catalog"


@dataclass(frozen=True, slots=True)
class Catalog:
    """What finds a table by its name."""

    kind: str = "path"
    uri: str | None = None
    """Of a REST service, a metastore, or a database as `jdbc:…`."""
    warehouse: str | None = None
    """Where new tables go."""
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Others, as the catalog names them."""
    name: str = "danube_lake"
    """Under which Spark knows it."""


@dataclass(frozen=True, slots=True)
class TablePlace:
    """A table of one format, wherever it is."""

    format: TableFormat
    table: str
    catalog: Catalog = field(default_factory=Catalog)

    def __post_init__(self) -> None:
        _one_of("format", self.format, FORMATS)
        _one_of("catalog", self.catalog.kind, CATALOGS)
        if self.format == "delta" and self.catalog.kind not in ("path", "session"):
            raise Rejected(
                f"invalid catalog {self.catalog.kind!r} for a Delta table: use path, with the directory as --table, or "
                "session, with a name that Spark's own catalog knows"
            )
        if self.format == "iceberg":
            self._check_iceberg()

    def _check_iceberg(self) -> None:
        kind = self.catalog.kind
        if kind in ("rest", "sql", "hive") and not self.catalog.uri:
            raise Rejected(f"a catalog of kind {kind} needs its address: give --uri")
        if kind in ("hadoop", "sql") and not self.catalog.warehouse:
            raise Rejected(f"a catalog of kind {kind} needs a directory for tables: give --warehouse")
        if kind == "path":
            _warehouse_and_name(self.table)

    @property
    def libraries(self) -> tuple[str, ...]:
        """For the session."""
        stored = f"{self.table} {self.catalog.warehouse}"
        return (self.format, "s3") if "s3a://" in stored else (self.format,)

    @property
    def packages(self) -> tuple[str, ...]:
        """For the session, besides libraries."""
        return (
            ("org.xerial:sqlite-jdbc:3.50.3.0",) if (self.catalog.uri or "").startswith("jdbc:sqlite") else ()
        )

    def beside(self, suffix: str) -> "TablePlace":
        """Another table at the same place."""
        return TablePlace(self.format, f"{self.table.rstrip('/')}{suffix}", self.catalog)

    def spark_config(self) -> dict[str, str]:
        """Settings that make a session find the table."""
        if self.format == "delta" or self.catalog.kind == "session":
            return {}
        prefix = f"spark.sql.catalog.{self.catalog.name}"
        config = {prefix: "org.apache.iceberg.spark.SparkCatalog", f"{prefix}.cache-enabled": "false"}
        kind = {"path": "hadoop", "sql": "jdbc"}.get(self.catalog.kind, self.catalog.kind)
        warehouse = self.catalog.warehouse
        if self.catalog.kind == "path":
            warehouse = _warehouse_and_name(self.table)[0]
        given = {"type": kind, "uri": self.catalog.uri, "warehouse": warehouse}
        if kind == "jdbc":
            given["jdbc.schema-version"] = "V1"
        if kind in ("rest", "jdbc"):
            given |= {name: os.environ.get(variable) for name, variable in CREDENTIAL_VARIABLES.items()}
        config |= {f"{prefix}.{name}": value for name, value in given.items() if value is not None}
        return {**config, **{f"{prefix}.{name}": value for name, value in self.catalog.properties.items()}}

    def open(self, spark: "SparkSession", sort_by: tuple[str, ...] = ()) -> "LakeTable":
        """The table, for a session that was told `spark_config`."""
        from pydanube.spark.lakehouse.delta_table import DeltaPlace, DeltaTable  # noqa: PLC0415 - loads Spark
        from pydanube.spark.lakehouse.iceberg_table import IcebergTable  # noqa: PLC0415

        if self.format == "delta":
            path = self.catalog.kind == "path"
            place = DeltaPlace(path=_absolute(self.table)) if path else DeltaPlace(name=self.table)
            return DeltaTable(spark, place, sort_by)
        if self.catalog.kind == "path":
            return IcebergTable(spark, self.catalog.name, _warehouse_and_name(self.table)[1])
        catalog = _SESSION_CATALOG if self.catalog.kind == "session" else self.catalog.name
        return IcebergTable(spark, catalog, self.table)


def _warehouse_and_name(path: str) -> tuple[str, str]:
    """A directory as the table `parent.name` of a warehouse above it.

    Raises:
        Rejected: it has too few parts, or some that are no names.
    """
    above, _, last = _absolute(path).rstrip("/").rpartition("/")
    warehouse, _, parent = above.rpartition("/")
    if not last or not parent or not warehouse or "." in last or "." in parent:
        raise Rejected(
            f"invalid path {path!r} of an Iceberg table: it takes a directory within another, WAREHOUSE/NAMESPACE/TABLE, "
            "without dots in the last two"
        )
    return warehouse, f"{parent}.{last}"


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


def _one_of(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given in allowed:
        return
    near = get_close_matches(given, allowed, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    raise Rejected(f"invalid {what} {given!r}: {meant}Use one of {', '.join(allowed)}")
