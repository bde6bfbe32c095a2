"""Running the tests inside a pipeline: its steps on rows of theirs, as one batch."""

from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from pydanube.kernel.errors import DanubeError
from pydanube.spark.failures import sentence
from pydanube.spark.pipelines.case_differences import Difference, differences
from pydanube.spark.pipelines.case_rows import case_source
from pydanube.spark.pipelines.compiling import Decoded, compile_pipeline
from pydanube.spark.pipelines.document import Case, Pipeline, Source
from pydanube.spark.pipelines.frames import Surroundings
from pydanube.spark.pipelines.own_session import own_session

ROWS_MAX = 10_000
"""That a test may give."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    name: str
    differences: tuple[Difference, ...] = ()
    """In rows of the sink."""
    quarantine_differences: tuple[Difference, ...] = ()
    error: str | None = None
    """It did not run."""

    @property
    def has_passed(self) -> bool:
        return not (self.error or self.differences or self.quarantine_differences)


def run_case(spark: SparkSession, pipeline: Pipeline, case: Case, around: Surroundings) -> CaseResult:
    """One test; sources without rows in it are empty."""
    own = own_session(spark, {})
    (first, *_) = pipeline.all_sources
    given = case.given if isinstance(case.given, dict) else {first: case.given}

    def read(name: str, source: Source) -> Decoded:
        return case_source(own, source, given.get(name, []), around)

    try:
        made = compile_pipeline(pipeline, read, around)
        rows = _collected(made.rows)
        bad = [] if made.quarantined is None else _collected(made.quarantined)
    except (PySparkException, DanubeError) as error:
        return CaseResult(case.name, error=sentence(error))
    return CaseResult(
        case.name, tuple(differences(case.expect, rows)), tuple(differences(case.quarantined, bad))
    )


def _collected(df: DataFrame) -> list[dict[str, Any]]:
    return [_plain_row(row) for row in df.limit(ROWS_MAX).collect()]


def _plain_row(row: Row) -> dict[str, Any]:
    return row.asDict(recursive=True)
