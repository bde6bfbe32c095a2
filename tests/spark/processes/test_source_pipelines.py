"""The format in Spark Declarative Pipelines, by their own command line, which imports nothing of ours."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pyspark
import pytest
from spark_harness.broker_process import BrokerProcess

SECONDS_MAX = 480
SPECIFICATION = """
name: orders
storage: file://{folder}/storage
libraries: [{{glob: {{include: transformations/**}}}}]
"""
TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

@dp.table
def orders():
    return SparkSession.active().readStream.format("danube").option("url", "{url}").load("/default/declared")

@dp.materialized_view
def keys():
    return SparkSession.active().read.table("orders").groupBy("routing_key").count()
"""


@pytest.mark.timeout(SECONDS_MAX + 20)
def test_tables_of_a_declared_pipeline(broker: BrokerProcess, tmp_path: Path) -> None:
    broker.publish("/default/declared", [b"1", b"2"], key="a")
    broker.publish("/default/declared", [b"3"], key="b")
    (tmp_path / "spark-pipeline.yml").write_text(SPECIFICATION.format(folder=tmp_path))
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "tables.py").write_text(TABLES.format(url=broker.url))
    settings = {
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    bin_folder = Path(sys.executable).parent
    ran = subprocess.run(
        [
            bin_folder / "spark-pipelines",
            "run",
            *(f"--conf={name}={value}" for name, value in settings.items()),
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "PYSPARK_PYTHON": sys.executable,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    counts = pq.read_table(tmp_path / "warehouse" / "keys").to_pylist()
    assert {row["routing_key"]: row["count"] for row in counts} == {"a": 2, "b": 1}
