"""A Spark session with what this package needs."""

import atexit
import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.find_spark_home import _find_spark_home
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.spark.jars import (
    LIBRARIES,
    JarPlan,
    SparkVersion,
    default_jars_dir,
    plan_jars,
    remember,
    spark_version,
)
from pydanube.spark.java import find_java, java_home
from pydanube.spark.worker_python import worker_python

_UNRESOLVED: Final = re.compile(
    r"(?:unresolved dependency|download failed): (?P<group>[\w.-]+)#(?P<artifact>[\w.-]+);(?P<version>[\w.-]+)"
)

_SOCKET_DIR_LENGTH_MAX: Final = 50
"""An address has about 100 bytes, of which Spark's name for a socket takes half."""

# PySpark logs, as JSON on stderr, every error it raises: whoever catches it decides what is shown.
logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where Spark runs and what it loads."""

    master: str = "local[*]"
    """`local[N]`, the address of a cluster, or `sc://host:port` of a Spark Connect server."""
    app_name: str = "danube"
    libraries: Sequence[str] = ()
    """Names from `jars.LIBRARIES`."""
    packages: Sequence[str] = ()
    """Others, as Maven coordinates."""
    jars_dir: Path | None = None
    """Take all of them from here instead of resolving them; also the variable DANUBE_SPARK_JARS."""
    config: Mapping[str, str] = field(default_factory=dict)
    """Wins over everything set here."""
    log: Path | None = None
    """A file for what Spark says; without it, stderr."""

    @property
    def is_local(self) -> bool:
        return self.master.startswith("local")

    @property
    def is_remote(self) -> bool:
        return self.master.startswith("sc://")


def open_session(settings: SparkSettings | None = None) -> SparkSession:
    """The session of these settings; the one that is there, if there is one.

    Raises:
        Rejected: Java is missing or too old, a library cannot be had, or the session that is there lacks it.
        DanubeError: Spark did not start.
    """
    settings = settings or SparkSettings()
    there = _session_that_is_there()
    if there is not None:
        _must_have(there, settings)
        return there
    if settings.is_remote:
        return _connect(settings)
    scratch = Path(tempfile.mkdtemp(prefix="danube-spark-"))
    try:
        return _start(settings, scratch)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _session_that_is_there() -> SparkSession | None:
    if SparkContext._active_spark_context is None:
        return SparkSession.getActiveSession()
    # Not the active one: that is the last that made a frame, perhaps one that only a pipeline has.
    return SparkSession.builder.getOrCreate()


def installed_version() -> SparkVersion:
    """Of the Spark that a session would run, if it is not a remote one."""
    return spark_version(Path(_find_spark_home()))  # type: ignore[no-untyped-call]


def resolved_jars(settings: SparkSettings) -> tuple[Path, ...]:
    """The files of the libraries and packages of these settings; Spark is started if it must find them first.

    Raises:
        Rejected, DanubeError: as `open_session`.
    """
    plan = plan_jars(settings.libraries, settings.packages, installed_version())
    return plan.jars or _jars_of(open_session(settings).sparkContext)


def _jars_of(context: SparkContext) -> tuple[Path, ...]:
    addresses = (context.getConf().get("spark.jars", "") or "").split(",")
    return tuple(Path(unquote(urlsplit(each).path)) for each in addresses if each)


def _start(settings: SparkSettings, scratch: Path) -> SparkSession:
    os.environ["JAVA_HOME"] = str(java_home(find_java(), scratch))
    if settings.is_local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        # On a cluster, executors have a Python of their own.
        os.environ.setdefault("PYSPARK_PYTHON", worker_python(Path(_find_spark_home()), scratch))  # type: ignore[no-untyped-call]
    plan = plan_jars(
        settings.libraries, settings.packages, installed_version(), settings.jars_dir or default_jars_dir()
    )
    conf = SparkConf(loadDefaults=False).setMaster(settings.master).setAppName(settings.app_name)
    for name, value in _config(settings, plan, scratch).items():
        conf.set(name, value)
    context = _start_context(conf, settings)
    if plan.packages:
        remember(plan.packages, _jars_of(context))
    session = SparkSession(context)
    atexit.register(_end, session, scratch)
    return session


def _config(settings: SparkSettings, plan: JarPlan, scratch: Path) -> dict[str, str]:
    temporary = scratch / "tmp"
    temporary.mkdir()
    config = {
        "spark.driver.defaultJavaOptions": f"-Djava.io.tmpdir={temporary}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(scratch / "local"),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
    }
    if settings.is_local:
        config |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.python.daemon.module": "pydanube.spark.worker_daemon",
        }
        if hasattr(socket, "AF_UNIX") and len(str(temporary)) <= _SOCKET_DIR_LENGTH_MAX:
            # Cheaper than TCP between Spark and its Python workers, and nobody else's to connect to.
            config |= {
                "spark.python.unix.domain.socket.enabled": "true",
                "spark.python.unix.domain.socket.dir": str(temporary),
            }
    return {**config, **plan.spark_config(), **settings.config}


def _start_context(conf: SparkConf, settings: SparkSettings) -> SparkContext:
    """A context on a JVM of its own, whose first words already go to the log."""
    if settings.log is None:
        return SparkContext.getOrCreate(conf)
    settings.log.parent.mkdir(parents=True, exist_ok=True)
    # Of the last start only: nobody looks after this file.
    settings.log.write_bytes(b"")
    with settings.log.open("ab") as log:
        try:
            gateway = launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except PySparkException as error:
            raise DanubeError(f"Spark did not start: {_reason(settings.log)}") from error
    return SparkContext(conf=conf, gateway=gateway)


def _reason(log: Path) -> str:
    """What Spark's launcher said about its end."""
    text = log.read_text(errors="replace")
    if missing := _UNRESOLVED.search(text):
        return (
            f"{missing['group']}:{missing['artifact']}:{missing['version']} cannot be fetched: check the repositories "
            f"of this machine (spark.jars.ivySettings), or use a directory of jars (--jars-dir); more in {log}"
        )
    telling = [line.strip() for line in text.splitlines() if "Exception" in line or "Error" in line]
    return f"{telling[0]} (more in {log})" if telling else f"see {log}"


def _connect(settings: SparkSettings) -> SparkSession:
    """A session of a Spark Connect server: what it loads is decided where it runs."""
    builder = SparkSession.builder.remote(settings.master).appName(settings.app_name)
    for name, value in settings.config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _must_have(session: SparkSession, settings: SparkSettings) -> None:
    if not isinstance(session, SparkSession) or not hasattr(session, "_jvm"):
        return
    classes = session.sparkContext._jvm.org.apache.spark.util.Utils  # type: ignore[union-attr]
    missing = [name for name in settings.libraries if not classes.classIsLoadable(LIBRARIES[name].marker)]
    if missing:
        raise Rejected(
            f"the Spark session of this process was opened without {', '.join(missing)}: "
            "stop it first, or open it with these libraries"
        )


def _end(session: SparkSession, scratch: Path) -> None:
    with suppress(Exception):
        session.stop()
    shutil.rmtree(scratch, ignore_errors=True)
