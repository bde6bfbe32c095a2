"""From a file to a pipeline that has been checked."""

from pathlib import Path

from pydanube.kernel.errors import Rejected
from pydanube.spark.pipelines.checked_yaml import Invalid, Lines, Problem, load
from pydanube.spark.pipelines.checking import check
from pydanube.spark.pipelines.document import Pipeline


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline of a file.

    Raises:
        Invalid: the file is wrong; all that is wrong is told at once.
        Rejected: it cannot be read.
    """
    pipeline, problems = examine(Path(path))
    errors = [problem for problem in problems if not problem.is_warning]
    if pipeline is None or errors:
        raise Invalid(str(path), errors)
    return pipeline


def examine(path: Path) -> tuple[Pipeline | None, tuple[Problem, ...]]:
    """The pipeline, if the file says one, and everything that is wrong with it or looks like it."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Rejected(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        pipeline, lines, problems = load(text, Pipeline, str(path))
    except Invalid as invalid:
        return None, invalid.problems
    return pipeline, tuple(sorted({*problems, *check(pipeline, lines, path.resolve().parent)}))


def check_pipeline(pipeline: Pipeline, folder: Path | None = None) -> tuple[Problem, ...]:
    """Everything that is wrong with a pipeline made in Python; files and modules are looked for in the folder."""
    return tuple(sorted(set(check(pipeline, Lines(pipeline.name), folder))))
