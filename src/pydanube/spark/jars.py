"""What Spark loads besides itself: table formats, Kafka, object stores.

Spark finds them by its own package resolution, with the repositories this machine is set up for; no address is known
here. Where there is no network, a directory of jars serves instead. What was resolved once is remembered, since
asking again takes seconds at each start even if nothing is downloaded.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from pydanube.kernel.errors import Rejected

JARS_DIR_VARIABLE: Final = "DANUBE_SPARK_JARS"

EXCLUDED: Final = (
    "com.fasterxml.jackson.core:*",
    "com.github.luben:*",
    "com.google.code.findbugs:*",
    "commons-codec:*",
    "commons-logging:*",
    "io.airlift:*",
    "io.netty:*",
    "org.apache.hadoop:hadoop-client-api",
    "org.apache.hadoop:hadoop-client-runtime",
    "org.apache.hadoop:hadoop-common",
    "org.apache.httpcomponents:*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.lz4:*",
    "org.roaringbitmap:*",
    "org.scala-lang:*",
    "org.scala-lang.modules:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""What Spark carries itself: never fetched, and never a second version beside Spark's."""

_AWS_SDK: Final = "2.29.52"
"""What Hadoop 3.4 was built with."""


@dataclass(frozen=True, slots=True)
class SparkVersion:
    """Of the Spark that runs here, and of what it was built with."""

    spark: str
    scala: str
    hadoop: str

    @property
    def line(self) -> str:
        return ".".join(self.spark.split(".")[:2])


@dataclass(frozen=True, slots=True)
class Library:
    """A name for packages that belong together, and what Spark must be told to use them."""

    coordinates: tuple[str, ...]
    """With the places {line}, {scala} and {hadoop}."""
    marker: str
    """A class of it: whether a session has the library is whether it has this class."""
    extension: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = ()
    lines: frozenset[str] | None = None
    """The lines of Spark it has a build for; None: any."""


LIBRARIES: Final[Mapping[str, Library]] = {
    "iceberg": Library(
        ("org.apache.iceberg:iceberg-spark-runtime-{line}_{scala}:1.12.0",),
        "org.apache.iceberg.spark.SparkCatalog",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        lines=frozenset({"4.0", "4.1"}),
    ),
    "delta": Library(
        ("io.delta:delta-spark_{line}_{scala}:4.4.0",),
        "io.delta.sql.DeltaSparkSessionExtension",
        "io.delta.sql.DeltaSparkSessionExtension",
        {"spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"},
        lines=frozenset({"4.1", "4.2"}),
    ),
    "kafka": Library(
        # Of the same line, not the same patch: repositories of jars get those later than the Python index does.
        ("org.apache.spark:spark-sql-kafka-0-10_{scala}:4.1.3",),
        "org.apache.spark.sql.kafka010.KafkaSourceProvider",
        excluded=("org.apache.spark:spark-tags_2.13",),
        lines=frozenset({"4.1"}),
    ),
    "s3": Library(
        (
            "org.apache.hadoop:hadoop-aws:{hadoop}",
            *(
                f"software.amazon.awssdk:{module}:{_AWS_SDK}"
                for module in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
            ),
        ),
        "org.apache.hadoop.fs.s3a.S3AFileSystem",
        # All of AWS in one jar, many times larger than the modules that are used, which have 12 MB.
        excluded=("software.amazon.awssdk:bundle", "org.wildfly.openssl:*"),
    ),
}


@dataclass(frozen=True, slots=True)
class JarPlan:
    """How a session gets what it was asked to load."""

    packages: tuple[str, ...] = ()
    """To be resolved by Spark."""
    jars: tuple[Path, ...] = ()
    """At hand."""
    config: Mapping[str, str] = field(default_factory=dict)
    excluded: tuple[str, ...] = EXCLUDED

    def spark_config(self) -> dict[str, str]:
        config = dict(self.config)
        if self.packages:
            config["spark.jars.packages"] = ",".join(self.packages)
            config["spark.jars.excludes"] = ",".join(self.excluded)
        if self.jars:
            config["spark.jars"] = ",".join(path.as_uri() for path in self.jars)
        return config


def spark_version(spark_home: Path) -> SparkVersion:
    """Read off the names of Spark's own jars."""
    core = _version_of(spark_home, r"spark-core_(?P<scala>[\d.]+)-(?P<version>.+)\.jar")
    hadoop = _version_of(spark_home, r"hadoop-client-api-(?P<version>.+)\.jar")
    return SparkVersion(core["version"], core["scala"], hadoop["version"])


def coordinates(names: Iterable[str], version: SparkVersion) -> tuple[str, ...]:
    """The packages of these libraries, for this Spark.

    Raises:
        Rejected: no such library, or none for this Spark.
    """
    found: list[str] = []
    for name in names:
        library = library_named(name)
        if library.lines is not None and version.line not in library.lines:
            raise Rejected(
                f"no build of {name} is known for Spark {version.spark} (there is one for "
                f"{', '.join(sorted(library.lines))}): use that Spark, or name a package that fits by --package"
            )
        places = {"line": version.line, "scala": version.scala, "hadoop": version.hadoop}
        found += [each.format(**places) for each in library.coordinates]
    return tuple(found)


def library_named(name: str) -> Library:
    if name not in LIBRARIES:
        near = get_close_matches(name, LIBRARIES, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise Rejected(f"unknown library {name!r}: {meant}There are {', '.join(sorted(LIBRARIES))}")
    return LIBRARIES[name]


def plan_jars(
    names: Sequence[str], packages: Sequence[str], version: SparkVersion, jars_dir: Path | None = None
) -> JarPlan:
    """How a session gets these libraries and packages: from a directory, from memory or by Spark's resolution.

    Raises:
        Rejected: the directory lacks one of them, or a library has none for this Spark.
    """
    libraries = [library_named(name) for name in names]
    wanted = tuple(dict.fromkeys((*coordinates(names, version), *map(checked, packages))))
    config: dict[str, str] = {}
    for library in libraries:
        config |= library.config
    if extensions := [each.extension for each in libraries if each.extension]:
        config["spark.sql.extensions"] = ",".join(extensions)
    excluded = tuple(
        dict.fromkeys((*EXCLUDED, *(each for library in libraries for each in library.excluded)))
    )
    if not wanted:
        return JarPlan(config=config)
    if jars_dir is not None:
        return JarPlan(jars=jars_of(jars_dir, wanted), config=config)
    if remembered := recall(wanted):
        return JarPlan(jars=remembered, config=config)
    return JarPlan(wanted, config=config, excluded=excluded)


def default_jars_dir() -> Path | None:
    """The directory the environment names."""
    named = os.environ.get(JARS_DIR_VARIABLE)
    return Path(named) if named else None


def jars_of(directory: Path, wanted: Sequence[str]) -> tuple[Path, ...]:
    """All jars of a directory, which must hold at least those wanted.

    Raises:
        Rejected: one is missing.
    """
    for each in wanted:
        if not held_in(directory, each):
            raise Rejected(
                f"{directory} has no {jar_name(each)}: put it there with what it needs (`danube spark jars --fetch "
                f"{directory}` does, where there is a network), or leave --jars-dir and {JARS_DIR_VARIABLE} out"
            )
    return tuple(sorted(directory.resolve().glob("*.jar")))


def held_in(directory: Path, coordinate: str) -> bool:
    """Whether a directory has the jar of a package."""
    file = jar_name(coordinate)
    # Ivy puts the group before the name, Maven does not.
    return any(path.name == file or path.name.endswith(f"_{file}") for path in directory.glob("*.jar"))


def checked(coordinate: str) -> str:
    """The same, if it is `group:artifact:version`.

    Raises:
        Rejected: it is not.
    """
    parts = coordinate.split(":")
    if len(parts) != 3 or not all(parts):
        raise Rejected(f"invalid package {coordinate!r}: write it as group:artifact:version")
    return coordinate


def jar_name(coordinate: str) -> str:
    """The name of the file that a package is."""
    _, artifact, version = coordinate.split(":")
    return f"{artifact}-{version}.jar"


def cache_dir() -> Path:
    """What may be lost is kept here."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pydanube"


def remember(wanted: Sequence[str], jars: Sequence[Path]) -> None:
    """Keep what was resolved for the next start; where that cannot be written, the next start resolves again."""
    file = _memory_of(wanted)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"packages": list(wanted), "jars": list(map(str, jars))}, indent=1))
        draft.replace(file)
    except OSError:
        return


def recall(wanted: Sequence[str]) -> tuple[Path, ...]:
    """The jars that these packages were resolved to, if all of them are still there; otherwise none."""
    try:
        jars = [Path(each) for each in json.loads(_memory_of(wanted).read_text())["jars"]]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return tuple(jars) if all(path.is_file() for path in jars) else ()


def _memory_of(wanted: Sequence[str]) -> Path:
    digest = hashlib.sha256("\n".join(sorted((*wanted, *EXCLUDED))).encode()).hexdigest()[:24]
    return cache_dir() / "spark-jars" / f"{digest}.json"


def _version_of(spark_home: Path, pattern: str) -> dict[str, str]:
    expression = re.compile(pattern)
    for path in sorted((spark_home / "jars").glob("*.jar")):
        if found := expression.fullmatch(path.name):
            return found.groupdict()
    raise Rejected(f"{spark_home} is no Spark distribution: it has no jar like {pattern}; check SPARK_HOME")
