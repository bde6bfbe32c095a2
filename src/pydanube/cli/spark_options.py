"""What every command that runs on Spark has in common: which broker, which Spark, which jars; and how it fails."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.admin_connection import Command
from pydanube.cli.credentials import credential_options, given
from pydanube.cli.failures import INTERRUPTED, Url
from pydanube.cli.named_value import NamedValue
from pydanube.kernel.errors import DanubeError

if TYPE_CHECKING:
    from pydanube.spark.connection import Connection
    from pydanube.spark.session import SparkSettings
    from pydanube.stores.settings import DurableSettings

MASTER_DEFAULT: Final = "local[*]"


@dataclass(frozen=True, slots=True)
class SparkJob:
    """What the options say; made by `spark_options`."""

    broker: str
    master: str
    jars_dir: Path | None = None
    packages: tuple[str, ...] = ()
    config: Mapping[str, str] = field(default_factory=dict)
    store: Path | None = None
    verbose: bool = False

    @property
    def is_remote(self) -> bool:
        """A Spark Connect server: what it is given to begin with, it was given by others."""
        return self.master.startswith("sc://")

    def connection(self) -> "Connection":
        """The broker, with the credentials of the command that is running."""
        from pydanube.spark.connection import Connection  # noqa: PLC0415 - slow to load

        shown = given()
        files = (
            None if file is None else str(file.resolve()) for file in (shown.ca, shown.cert, shown.cert_key)
        )
        return Connection(self.broker, shown.token, *files)

    def durable(self) -> "DurableSettings | None":
        """How to get into the object store, if that was said."""
        if self.store is None:
            return None
        from pydanube.server.config_file import load_config  # noqa: PLC0415

        return load_config(self.store).settings.storage.durable

    def store_options(self) -> dict[str, str]:
        """How executors get into the object store, as options of the data source without their prefix."""
        from pydanube.spark.object_store import store_options  # noqa: PLC0415

        durable = self.durable()
        return {} if durable is None else store_options(durable)

    def settings(
        self,
        libraries: Sequence[str] = (),
        config: Mapping[str, str] | None = None,
        *,
        app_name: str = "danube",
    ) -> "SparkSettings":
        """For `open_session`: what the command needs, then what its user says; S3 if that leads there."""
        from pydanube.spark.jars import cache_dir  # noqa: PLC0415
        from pydanube.spark.object_store import S3A, object_store_config  # noqa: PLC0415
        from pydanube.spark.session import SparkSettings  # noqa: PLC0415

        durable = self.durable()
        stored = {} if durable is None else object_store_config(durable)
        said = {**(config or {}), **stored, **self.config}
        needs_s3 = any(name.startswith(S3A) for name in said)
        return SparkSettings(
            master=self.master,
            app_name=app_name,
            libraries=tuple(dict.fromkeys((*libraries, *(["s3"] if needs_s3 else [])))),
            packages=self.packages,
            jars_dir=self.jars_dir,
            config=said,
            log=None if self.verbose else cache_dir() / "spark.log",
        )


_jars_dir: Final = click.option(
    "--jars-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    envvar="DANUBE_SPARK_JARS",
    show_envvar=True,
    help="Take jars from this directory instead of the network; `danube spark jars --fetch` fills one.",
)
_package: Final = click.option(
    "--package",
    "packages",
    multiple=True,
    metavar="GROUP:ARTIFACT:VERSION",
    help="Load this too, e.g. a JDBC driver.",
)


def jars_options(command: Command) -> Command:
    """`--jars-dir` and `--package`; the command gets them as `jars_dir` and `packages`."""
    return _jars_dir(_package(command))


def spark_options(command: Command) -> Command:
    """The options; the command gets them as `job`. Its errors, and Spark's, become sentences."""

    @click.option(
        "-s",
        "--broker",
        "--service-addr",
        "--url",
        "broker",
        type=Url(),
        default="danube://127.0.0.1:6650",
        show_default=True,
        envvar=["DANUBE_URL", "DANUBE_SERVICE_ADDR"],
        show_envvar=True,
        help="Broker to connect to.",
    )
    @credential_options("DANUBE")
    @click.option(
        "--master",
        default=MASTER_DEFAULT,
        show_default=True,
        envvar="DANUBE_SPARK_MASTER",
        show_envvar=True,
        help="Where Spark runs: here, on a cluster (spark://…, yarn, k8s://…) or a Spark Connect server (sc://…).",
    )
    @jars_options
    @click.option(
        "--conf",
        "config",
        type=NamedValue("setting of Spark", prefix="spark."),
        multiple=True,
        help="A setting of Spark; wins over all others.",
    )
    @click.option(
        "--store",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        envvar="DANUBE_SPARK_STORE",
        show_envvar=True,
        help="A broker's configuration file: its storage.durable says how to reach history on an object store.",
    )
    @click.option("--verbose", is_flag=True, help="Show what Spark says, and errors as they are.")
    @functools.wraps(command)
    def with_job(
        *,
        broker: str,
        master: str,
        jars_dir: Path | None,
        packages: tuple[str, ...],
        config: tuple[tuple[str, str], ...],
        store: Path | None,
        verbose: bool,
        **options: Any,
    ) -> Any:
        job = SparkJob(broker, master, jars_dir, packages, dict(config), store, verbose)
        with spark_failures(verbose=verbose):
            return command(job=job, **options)

    return with_job


@contextmanager
def spark_failures(*, verbose: bool = False) -> Iterator[None]:
    """Errors become sentences and exit statuses; without the extra, a word on how to get it."""
    if find_spec("pyspark") is None:
        raise click.ClickException("this command needs Spark: `pip install 'pydanube[spark]'`")
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    except Exception as error:
        from pydanube.spark.failures import SPARK_ERRORS, sentence  # noqa: PLC0415 - loads Spark

        if not isinstance(error, SPARK_ERRORS):
            raise
        raise click.ClickException(str(error) if verbose else sentence(error)) from error
