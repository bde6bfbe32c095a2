"""`danube spark`: the Spark that jobs run on, and the jars they need."""

import platform
import shutil
from pathlib import Path

import click

from pydanube.cli.spark_options import jars_options, spark_failures
from pydanube.cli.tables import output_option, show_facts, show_rows, size_text


@click.group()
def spark() -> None:
    """Look at the Spark that jobs run on, fetch the jars they need."""


@spark.command()
@output_option
def info(output: str) -> None:
    """Show the versions of Spark and Java that jobs would run with here. Nothing is started."""
    with spark_failures():
        from pydanube.spark.java import find_java  # noqa: PLC0415
        from pydanube.spark.session import installed_version  # noqa: PLC0415

        version, java = installed_version(), find_java()
        document = {
            "spark": version.spark,
            "scala": version.scala,
            "hadoop": version.hadoop,
            "python": platform.python_version(),
            "java": str(java.major),
            "java_home": str(java.home),
            "java_found_by": java.found_by,
        }
        lines = [(name.replace("_", " "), text) for name, text in document.items()]
        show_facts("Spark here", lines, document, output)


@spark.command()
@click.argument("libraries", nargs=-1, metavar="[LIBRARY]...")
@click.option(
    "--fetch",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Put them, and what they need, into this directory, for --jars-dir where there is no network.",
)
@jars_options
@output_option
def jars(
    *,
    libraries: tuple[str, ...],
    fetch: Path | None,
    jars_dir: Path | None,
    packages: tuple[str, ...],
    output: str,
) -> None:
    """Show the jars of LIBRARY (iceberg, delta, kafka, s3; all of them without a name) and where they are."""
    with spark_failures():
        from pydanube.spark.jars import LIBRARIES  # noqa: PLC0415

        names = libraries or tuple(LIBRARIES)
        if fetch is None:
            _show(names, packages, jars_dir, output)
        else:
            _fetch(names, packages, fetch, output)


def _show(names: tuple[str, ...], packages: tuple[str, ...], jars_dir: Path | None, output: str) -> None:
    from pydanube.spark.jars import checked, coordinates, held_in  # noqa: PLC0415
    from pydanube.spark.session import installed_version  # noqa: PLC0415

    version = installed_version()
    wanted = [(name, each) for name in names for each in coordinates([name], version)]
    wanted += [("", checked(each)) for each in packages]
    at_hand = "" if jars_dir is None else str(jars_dir)
    document = [
        {
            "library": name,
            "package": each,
            "directory": at_hand if jars_dir is not None and held_in(jars_dir, each) else None,
        }
        for name, each in wanted
    ]
    rows = [(str(each["library"]), str(each["directory"] or "-"), str(each["package"])) for each in document]
    show_rows(f"Jars for Spark {version.spark}", ("library", "directory", "package"), rows, document, output)


def _fetch(names: tuple[str, ...], packages: tuple[str, ...], directory: Path, output: str) -> None:
    from pydanube.spark.jars import cache_dir  # noqa: PLC0415
    from pydanube.spark.session import SparkSettings, resolved_jars  # noqa: PLC0415

    log = cache_dir() / "spark.log"
    found = resolved_jars(SparkSettings("local[1]", libraries=names, packages=packages, log=log))
    directory.mkdir(parents=True, exist_ok=True)
    for jar in found:
        shutil.copyfile(jar, directory / jar.name)
    document = [{"file": jar.name, "bytes": jar.stat().st_size} for jar in found]
    total = size_text(sum(jar.stat().st_size for jar in found))
    rows = [(size_text(jar.stat().st_size), jar.name) for jar in found]
    show_rows(f"{len(found)} jars, {total}, in {directory}", ("size", "file"), rows, document, output)
