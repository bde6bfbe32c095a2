"""Names of libraries become packages, packages become jars: from a directory, from memory, or by Spark."""

from pathlib import Path

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.spark.jars import SparkVersion, coordinates, jars_of, plan_jars, recall, remember, spark_version

SPARK = SparkVersion("4.1.4", "2.13", "3.4.2")
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def make(directory: Path, *names: str) -> list[Path]:
    directory.mkdir(parents=True, exist_ok=True)
    paths = [directory / name for name in names]
    for path in paths:
        path.write_bytes(b"PK")
    return paths


def test_packages_fit_the_spark_that_runs(tmp_path: Path) -> None:
    make(tmp_path / "jars", "spark-core_2.13-4.1.4.jar", "hadoop-client-api-3.4.2.jar", "other-1.jar")
    version = spark_version(tmp_path)
    assert version == SPARK
    assert coordinates(["iceberg", "kafka"], version) == (
        ICEBERG,
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",
    )
    assert "org.apache.hadoop:hadoop-aws:3.4.2" in coordinates(["s3"], version)


def test_what_is_no_spark_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"is no Spark distribution.*check SPARK_HOME"):
        spark_version(tmp_path)


def test_an_unknown_library_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Rejected, match=r"unknown library 'icberg': did you mean iceberg\?"):
        coordinates(["icberg"], SPARK)


def test_a_spark_without_a_build_is_refused() -> None:
    with pytest.raises(Rejected, match=r"no build of iceberg is known for Spark 4\.3\.0.*--package"):
        coordinates(["iceberg"], SparkVersion("4.3.0", "2.13", "3.5.0"))


def test_spark_resolves_what_is_not_at_hand() -> None:
    config = plan_jars(["iceberg", "delta"], ["org.postgresql:postgresql:42.7.0"], SPARK).spark_config()
    packages = config["spark.jars.packages"].split(",")
    assert packages[0] == ICEBERG
    assert packages[-1] == "org.postgresql:postgresql:42.7.0"
    assert "org.slf4j:*" in config["spark.jars.excludes"].split(",")
    assert config["spark.sql.extensions"].count("Extension") == 2
    assert "spark.jars" not in config


def test_what_was_resolved_once_is_used_again_as_long_as_it_is_there(tmp_path: Path) -> None:
    jars = make(tmp_path / "ivy", "a.jar", "b c.jar")
    remember([ICEBERG], jars)
    assert recall([ICEBERG]) == tuple(jars)
    config = plan_jars(["iceberg"], [], SPARK).spark_config()
    assert config["spark.jars"] == ",".join(path.as_uri() for path in jars)
    assert "spark.jars.packages" not in config
    jars[0].unlink()
    assert recall([ICEBERG]) == ()
    assert "spark.jars" not in plan_jars(["iceberg"], [], SPARK).spark_config()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"jars": 3}', "\0"])
def test_a_damaged_memory_is_no_memory(tmp_path: Path, cache: Path, text: str) -> None:
    remember([ICEBERG], make(tmp_path / "ivy", "a.jar"))
    [file] = cache.rglob("*.json")
    file.write_text(text)
    assert recall([ICEBERG]) == ()


def test_a_directory_serves_instead_of_the_network(tmp_path: Path) -> None:
    by_ivy = make(
        tmp_path / "ivy", "org.apache.iceberg_iceberg-spark-runtime-4.1_2.13-1.12.0.jar", "needed.jar"
    )
    by_maven = make(tmp_path / "maven", "iceberg-spark-runtime-4.1_2.13-1.12.0.jar")
    assert jars_of(tmp_path / "ivy", [ICEBERG]) == tuple(sorted(by_ivy))
    assert jars_of(tmp_path / "maven", [ICEBERG]) == tuple(by_maven)
    config = plan_jars(["iceberg"], [], SPARK, tmp_path / "maven").spark_config()
    assert config["spark.jars"] == by_maven[0].as_uri()
    assert "spark.jars.packages" not in config


def test_a_directory_that_lacks_a_jar_names_it(tmp_path: Path) -> None:
    make(
        tmp_path, "my-iceberg-spark-runtime-4.1_2.13-1.12.0.jar", "iceberg-spark-runtime-4.1_2.13-1.11.0.jar"
    )
    with pytest.raises(Rejected, match=r"has no iceberg-spark-runtime-4\.1_2\.13-1\.12\.0\.jar.*--fetch"):
        plan_jars(["iceberg"], [], SPARK, tmp_path)


@pytest.mark.parametrize("package", ["postgresql", "a:b", "a:b:", "a:b:c:d"])
def test_a_package_is_a_whole_coordinate(package: str) -> None:
    with pytest.raises(Rejected, match=r"invalid package .*group:artifact:version"):
        plan_jars([], [package], SPARK)
