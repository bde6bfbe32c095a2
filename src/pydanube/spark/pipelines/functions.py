"""DataFrame functions that steps call by name.

@pipeline_function
def large_orders(df: DataFrame, least: int) -> DataFrame:
    return df.where(df.amount >= least)
"""

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydanube.kernel.errors import Rejected
from pydanube.spark.pipelines.checked_yaml import unknown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DataFrameFunction = Callable[..., "DataFrame"]
F = TypeVar("F", bound=Callable[..., Any])

_named: dict[str, DataFrameFunction] = {}


def pipeline_function(function: F) -> F:
    """Let steps call a function by its bare name, in the process it is defined in."""
    _named[function.__name__] = function
    return function


def find_function(name: str, folder: Path | None) -> DataFrameFunction:
    """The function a step names; modules beside the pipeline's file are found first.

    Raises:
        Rejected: there is none.
    """
    module, colon, function = name.partition(":")
    if not colon:
        if name not in _named:
            raise Rejected(unknown("function", name, _named) if _named else _not_registered(name))
        return _named[name]
    try:
        with _beside(folder):
            found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise Rejected(f"function {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise Rejected(f"{name!r} is not a function")
    return found  # type: ignore[no-any-return]


def missing_function(name: str, folder: Path | None) -> str | None:
    """Why there is no such function, found out without running its module; None if there is one, or may be."""
    module, colon, function = name.partition(":")
    if not colon:
        # Those that were registered are known in the process that did so only.
        return None if name in _named else _not_registered(name)
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        return f"{name!r} is no function: write module:function"
    with _beside(folder):
        try:
            spec = find_spec(module)
        except (ImportError, ValueError) as error:
            return f"the module of {name!r} is not found: {error}"
    if spec is None:
        return f"the module of {name!r} is not found, neither beside this file nor among those installed"
    if spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        body = ast.parse(Path(spec.origin).read_bytes()).body
    except (OSError, SyntaxError, ValueError) as error:
        return f"the module of {name!r} is not readable: {error}"
    names = _defined(body)
    if function in names or any(
        isinstance(each, ast.ImportFrom) and each.names[0].name == "*" for each in body
    ):
        return None
    return unknown(f"function of {module}", function, sorted(names) or ["none"])


def _defined(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for each in body:
        if isinstance(each, (ast.FunctionDef, ast.ClassDef)):
            names.add(each.name)
        elif isinstance(each, ast.Assign):
            names.update(target.id for target in each.targets if isinstance(target, ast.Name))
        elif isinstance(each, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name for alias in each.names)
    return names


def _not_registered(name: str) -> str:
    return f"unknown function {name!r}: write module:function"


@contextmanager
def _beside(folder: Path | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    place = str(folder)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)
