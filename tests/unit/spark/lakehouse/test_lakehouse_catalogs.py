"""Where tables are."""

from typing import Any

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.spark.lakehouse.catalogs import Catalog, TablePlace


def test_a_path_is_a_table_of_a_warehouse_two_levels_up() -> None:
    place = TablePlace("iceberg", "s3a://bucket/lake/sales/orders/")
    config = place.spark_config()
    assert config["spark.sql.catalog.danube_lake.type"] == "hadoop"
    assert config["spark.sql.catalog.danube_lake.warehouse"] == "s3a://bucket/lake"
    assert place.libraries == ("iceberg", "s3")
    assert place.beside("_quarantine").table == "s3a://bucket/lake/sales/orders_quarantine"


def test_catalogs_get_their_properties_and_secrets_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DANUBE_CATALOG_TOKEN", "secret")
    catalog = Catalog("rest", "http://127.0.0.1:1", "prod", {"oauth2-server-uri": "x"}, "c")
    assert TablePlace("iceberg", "a.b", catalog).spark_config() == {
        "spark.sql.catalog.c": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.c.cache-enabled": "false",
        "spark.sql.catalog.c.type": "rest",
        "spark.sql.catalog.c.uri": "http://127.0.0.1:1",
        "spark.sql.catalog.c.warehouse": "prod",
        "spark.sql.catalog.c.token": "secret",
        "spark.sql.catalog.c.oauth2-server-uri": "x",
    }
    assert "oauth2" not in repr(catalog)
    sql = TablePlace("iceberg", "a.b", Catalog("sql", "jdbc:sqlite:x.db", "w"))
    assert sql.spark_config()["spark.sql.catalog.danube_lake.type"] == "jdbc"
    assert sql.packages[0].startswith("org.xerial:sqlite-jdbc:")
    assert TablePlace("delta", "sales.orders", Catalog("session")).spark_config() == {}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("iceburg", "a/b/c"), "invalid format 'iceburg': did you mean iceberg"),
        (("iceberg", "a.b", Catalog("rst")), "invalid catalog 'rst': did you mean rest"),
        (("iceberg", "a.b", Catalog("rest")), "give --uri"),
        (("iceberg", "a.b", Catalog("hadoop")), "give --warehouse"),
        (("iceberg", "/orders"), "WAREHOUSE/NAMESPACE/TABLE"),
        (("iceberg", "/lake/my.sales/orders"), "without dots"),
        (("delta", "a.b", Catalog("rest")), "for a Delta table"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(Rejected, match=text):
        TablePlace(*arguments)
