"""A pipeline as DataFrames: what goes to its sink, and what to its quarantine."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from pydanube.kernel.errors import DanubeError, Rejected
from pydanube.spark.decoding import KEPT, FileSchemas, RegistrySchemas, SchemaSource, decode
from pydanube.spark.failures import sentence
from pydanube.spark.pipelines.document import Decode, Pipeline, Source, Step, given
from pydanube.spark.pipelines.durations import parse_duration
from pydanube.spark.pipelines.frames import Surroundings
from pydanube.spark.pipelines.steps import Rows, apply, watermarked


@dataclass(frozen=True, slots=True)
class Decoded:
    """A source whose payloads are columns."""

    rows: DataFrame
    quarantined: DataFrame | None = None


@dataclass(frozen=True, slots=True)
class Compiled:
    rows: DataFrame
    quarantined: DataFrame | None
    """None: nothing is ever quarantined."""


ReadSource = Callable[[str, Source], Decoded]
"""A source by its name; tests have rows of their own for it."""


def compile_pipeline(pipeline: Pipeline, read: ReadSource, around: Surroundings) -> Compiled:
    """All of it; nothing has run yet.

    Raises:
        Rejected: Spark does not understand a step; the text says which.
    """
    sources = {name: read(name, source) for name, source in pipeline.all_sources.items()}
    known = {name: _watermarked(pipeline.all_sources[name], each.rows) for name, each in sources.items()}
    rows = next(iter(known.values()))
    for number, step in enumerate(pipeline.steps):
        before = known[step.source] if step.source is not None else rows
        rows = _applied(step, number, before, known, around)
        if step.name is not None:
            known[step.name] = rows
    bad = [each.quarantined for each in sources.values() if each.quarantined is not None]
    return Compiled(rows.df, reduce(DataFrame.unionByName, bad) if bad else None)


def decoded(source: Source, df: DataFrame, around: Surroundings) -> Decoded:
    """A source's messages as rows."""
    if source.decode is None:
        return Decoded(df)
    keep = [name for name in KEPT if name in df.columns]
    made = decode(df, schemas_of(source, source.decode, around), on_error=source.decode.on_error, keep=keep)
    return Decoded(made.rows, made.quarantined if source.decode.on_error == "quarantine" else None)


def schemas_of(source: Source, how: Decode, around: Surroundings) -> SchemaSource:
    """Where the schemas of a source's payloads come from."""
    if how.schema_type is not None:
        return FileSchemas(around.place(how.schema_file or ""), how.schema_type)
    # Whoever names the subject says what the payloads are, also of messages that do not say so themselves.
    return RegistrySchemas(around.connection, how.subject, source.topic, how.version, unnamed_rows="decode")


def _applied(step: Step, number: int, rows: Rows, known: Mapping[str, Rows], around: Surroundings) -> Rows:
    try:
        return apply(step, rows, known, around.folder)
    except (PySparkException, DanubeError) as error:
        raise Rejected(f"steps[{number}] ({step.name or given(step)[0]}): {sentence(error)}") from error


def _watermarked(source: Source, df: DataFrame) -> Rows:
    if source.watermark is None:
        return Rows(df)
    return watermarked(Rows(df), source.watermark.column, parse_duration(source.watermark.delay).interval)
