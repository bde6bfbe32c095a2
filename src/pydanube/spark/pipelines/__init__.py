"""Pipelines: source, decode, steps, sink, quarantine and tests, in a YAML file or in Python.

Start reading at `document.py`, which is all that can be said. Checking needs no Spark; `compiling.py` makes DataFrames
of what was said, `running.py` runs them and `cases.py` tests them.
"""

from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from pydanube.spark.connection import DEFAULT_URL, Connection
from pydanube.spark.pipelines.checked_yaml import Invalid, Problem
from pydanube.spark.pipelines.document import (
    Case,
    Decode,
    Dedupe,
    Enrich,
    Function,
    Join,
    Pipeline,
    Sink,
    Source,
    Step,
    Window,
)
from pydanube.spark.pipelines.functions import pipeline_function
from pydanube.spark.pipelines.loading import check_pipeline, load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pydanube.spark.pipelines.cases import CaseResult
    from pydanube.spark.pipelines.running import Outcome

__all__ = [
    "Case", "Decode", "Dedupe", "Enrich", "Function", "Invalid", "Join", "Pipeline", "Problem", "Sink", "Source",
    "Step", "Window", "check_pipeline", "load_pipeline", "pipeline_function", "run_cases", "run_pipeline",
]  # fmt: skip


def run_pipeline(
    spark: "SparkSession",
    pipeline: Pipeline,
    *,
    checkpoint: str | Path | None = None,
    connection: Connection | None = None,
    folder: Path | None = None,
    once: bool = False,
    stop: Event | None = None,
) -> "Outcome":
    """Check a pipeline and run it in this thread until it ends, is stopped or cannot go on.

    Args:
        spark: the pipeline gets a session of its own beside this one.
        pipeline: from `load_pipeline`, or made in Python.
        checkpoint: the directory that remembers what was done; streams need one, if the pipeline does not name it.
        connection: the cluster of its topics; the pipeline's `broker` if not given.
        folder: where files and modules it names are looked for.
        once: end when everything is written that was there at the beginning.
        stop: set it, from another thread, to end the run after the batch under way.

    Raises:
        Invalid: the pipeline is wrong.
        DanubeError, PySparkException: it cannot go on.
    """
    from pydanube.spark.pipelines import frames, running  # noqa: PLC0415 - loads Spark

    _must_be_valid(pipeline, folder)
    settings = running.RunSettings(
        checkpoint=pipeline.checkpoint if checkpoint is None else str(checkpoint),
        once=once,
        stop=stop or Event(),
    )
    around = frames.Surroundings(connection_of(pipeline, connection), folder)
    return running.run(spark, pipeline, around, settings)


def run_cases(
    spark: "SparkSession",
    pipeline: Pipeline,
    *,
    connection: Connection | None = None,
    folder: Path | None = None,
) -> "list[CaseResult]":
    """Run the tests that are part of a pipeline; arguments are as for `run_pipeline`."""
    from pydanube.spark.pipelines import cases, frames  # noqa: PLC0415 - loads Spark

    _must_be_valid(pipeline, folder)
    around = frames.Surroundings(connection_of(pipeline, connection), folder)
    return [cases.run_case(spark, pipeline, case, around) for case in pipeline.tests]


def connection_of(pipeline: Pipeline, given: Connection | None = None) -> Connection:
    """The cluster of a pipeline's topics."""
    return given or Connection(pipeline.broker or DEFAULT_URL)


def _must_be_valid(pipeline: Pipeline, folder: Path | None) -> None:
    problems = [problem for problem in check_pipeline(pipeline, folder) if not problem.is_warning]
    if problems:
        raise Invalid(f"pipeline {pipeline.name}", problems)
