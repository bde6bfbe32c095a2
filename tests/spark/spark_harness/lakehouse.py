"""Tables of a lakehouse in a directory, read without Spark."""

from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from pydanube.spark.decoding import RegistrySchemas
from pydanube.spark.lakehouse.catalogs import Catalog, TablePlace
from pydanube.spark.lakehouse.sync import LakehouseSync, SyncOptions
from spark_harness.broker_process import BrokerProcess


class Lake:
    """Tables of one format; `close` takes back what the session was told about them."""

    def __init__(self, spark: SparkSession, folder: Path, format_: Any) -> None:
        self.spark = spark
        self.folder = folder
        self.format = format_
        self._names: set[str] = set()

    def place(self, name: str) -> TablePlace:
        catalog = Catalog("path", name=f"lake_{abs(hash(self.folder))}")
        place = TablePlace(self.format, str(self.folder / "db" / name), catalog)
        for key, value in place.spark_config().items():
            self.spark.conf.set(key, value)
            self._names.add(key)
        return place

    def sync(
        self, broker: BrokerProcess, topic: str, *, typed: bool = False, **options: Any
    ) -> LakehouseSync:
        name = topic.rpartition("/")[2].replace("-", "_")
        place = self.place(name)
        return LakehouseSync(
            self.spark,
            broker.connection,
            topic,
            place.open(self.spark),
            schemas=RegistrySchemas(broker.connection, topic=topic) if typed else None,
            quarantine=place.beside("_quarantine").open(self.spark),
            options=SyncOptions(**options),
        )

    def table(self, name: str) -> Any:
        return self.place(name).open(self.spark)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Without Spark."""
        path = self.folder / "db" / name
        if self.format == "delta":
            found = DeltaTable(path).to_pyarrow_table()
        else:
            found = StaticTable.from_metadata(metadata_of(path)).scan().to_arrow()
        return sorted(found.to_pylist(), key=lambda row: (row["_topic_partition"], row["_offset"]))

    def duckdb_count(self, name: str) -> int:
        path = self.folder / "db" / name
        if self.format == "delta":
            with duckdb.connect() as connection:
                found = DeltaTable(path).to_pyarrow_table()
                connection.register("t", found)
                return int(connection.execute("SELECT count(*) FROM t").fetchall()[0][0])
        with StaticTable.from_metadata(metadata_of(path)).scan().to_duckdb("t") as connection:
            return int(connection.execute("SELECT count(*) FROM t").fetchall()[0][0])

    def close(self) -> None:
        for key in self._names:
            self.spark.conf.unset(key)


def metadata_of(path: Path) -> str:
    """The newest one: the hint that lies beside them may be late after a race."""
    files = path.glob("metadata/v*.metadata.json")
    return str(max(files, key=lambda file: int(file.name.partition(".")[0][1:])))


def drain(sync: LakehouseSync) -> int:
    """The number of commits until nothing is left."""
    commits = 0
    while sync.step().commit is not None:
        commits += 1
        assert commits < 50
    return commits
