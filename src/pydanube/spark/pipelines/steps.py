"""Steps as functions from DataFrames to DataFrames; the same for streams, batches and tests."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.window import Window as Frame

from pydanube.kernel.errors import Rejected
from pydanube.spark.pipelines.document import Dedupe, Enrich, Function, Join, Step, Window, given
from pydanube.spark.pipelines.durations import parse_duration
from pydanube.spark.pipelines.functions import find_function

INPUT: Final = "input"
"""What a step works on, in SQL."""
_TURN: Final = "_turn"


@dataclass(frozen=True, slots=True)
class Rows:
    """A DataFrame, and the column of it that has a watermark."""

    df: DataFrame
    time: str | None = None


def apply(step: Step, rows: Rows, known: Mapping[str, Rows], folder: Path | None) -> Rows:
    """What a step makes of these rows; `known` are sources and earlier steps by name."""
    (kind,) = given(step)
    df = rows.df
    match getattr(step, kind):
        case str() as text if kind == "sql":
            return _sql(text, rows, known)
        case str() as condition:
            return replace(rows, df=df.where(condition))
        case dict() as columns:
            return replace(rows, df=df.withColumns({name: fn.expr(text) for name, text in columns.items()}))
        case list() as columns if kind == "select":
            return replace(rows, df=df.selectExpr(*columns))
        case list() as columns:
            return replace(rows, df=df.drop(*_there(df, columns)))
        case Dedupe() as dedupe:
            return _dedupe(dedupe, rows)
        case Window() as window:
            return _window(window, rows)
        case Join() as join:
            return _join(join, rows, known[join.other])
        case Enrich() as enrich:
            return _enrich(enrich, rows, known[enrich.other])
        case Function() as function:
            made = find_function(function.name, folder)(df, **function.args)
            if not isinstance(made, DataFrame):
                raise Rejected(f"function {function.name!r} gave {type(made).__name__}, not a DataFrame")
            return replace(rows, df=made)
    raise AssertionError(f"operation {kind} is not known")


def watermarked(rows: Rows, column: str, interval: str) -> Rows:
    """Spark takes one watermark of a stream; in a batch it means nothing."""
    if rows.time is not None:
        return rows
    return Rows(rows.df.withWatermark(column, interval), column)


def _sql(text: str, rows: Rows, known: Mapping[str, Rows]) -> Rows:
    """Tables are `input`, the sources and the steps with names; views of a session that only this pipeline has."""
    for name, each in {**known, INPUT: rows}.items():
        each.df.createOrReplaceTempView(f"`{name}`")
    made = rows.df.sparkSession.sql(text)
    return Rows(made, rows.time if rows.time in made.columns else None)


def _dedupe(dedupe: Dedupe, rows: Rows) -> Rows:
    within = parse_duration(dedupe.within).interval
    by = _there(rows.df, dedupe.by)
    if rows.df.isStreaming:
        made = watermarked(rows, dedupe.time, within)
        return replace(made, df=made.df.dropDuplicatesWithinWatermark(by))
    # Of a batch, Spark would drop equal rows however far apart they are.
    (time,) = _there(rows.df, [dedupe.time])
    in_order = Frame.partitionBy(*by).orderBy(time, fn.monotonically_increasing_id())
    turn = fn.lag(time).over(in_order)
    is_first = turn.isNull() | (fn.col(time) > turn + fn.expr(f"INTERVAL {within}"))
    return replace(rows, df=rows.df.withColumn(_TURN, is_first).where(_TURN).drop(_TURN))


def _window(window: Window, rows: Rows) -> Rows:
    late = parse_duration(window.late_by or "0s").interval
    made = watermarked(rows, window.time, late)
    size, slide = (
        None if text is None else parse_duration(text).interval for text in (window.size, window.slide)
    )
    assert size is not None
    frame = fn.window(window.time, size, slide)
    aggregates = [fn.expr(text).alias(name) for name, text in window.aggregate.items()]
    df = made.df.groupBy(frame, *window.by).agg(*aggregates)
    edges = (fn.col("window.start").alias("window_start"), fn.col("window.end").alias("window_end"))
    return Rows(df.select(*edges, *window.by, *window.aggregate), None)


def _join(join: Join, rows: Rows, other: Rows) -> Rows:
    left, right = rows.df.alias(INPUT), other.df.alias(join.other)
    condition = _condition(join.on, join.other)
    if join.within is not None and rows.time is not None and other.time is not None:
        within = fn.expr(f"INTERVAL {parse_duration(join.within).interval}")
        here, there = fn.col(f"{INPUT}.`{rows.time}`"), fn.col(f"{join.other}.`{other.time}`")
        condition = condition & (there >= here - within) & (there <= here + within)
    joined = left.join(right, condition, join.type)
    if join.type in ("left_semi", "left_anti"):
        return replace(rows, df=joined)
    shared = [] if isinstance(join.on, str) else join.on
    columns = [_left_column(name, join, is_shared=name in shared) for name in rows.df.columns]
    for name in other.df.columns:
        if name not in shared:
            # What both have is told apart by whose it is.
            made = f"{join.other}_{name}" if name in rows.df.columns else name
            columns.append(fn.col(f"{join.other}.`{name}`").alias(made))
    return replace(rows, df=joined.select(*columns))


def _left_column(name: str, join: Join, *, is_shared: bool) -> Column:
    column = fn.col(f"{INPUT}.`{name}`")
    if is_shared and join.type in ("right", "full"):
        column = fn.coalesce(column, fn.col(f"{join.other}.`{name}`"))
        return column.alias(name)
    return column


def _enrich(enrich: Enrich, rows: Rows, other: Rows) -> Rows:
    taken = _there(other.df, enrich.columns)
    joined = rows.df.alias(INPUT).join(
        other.df.alias(enrich.other), _condition(enrich.on, enrich.other), "left"
    )
    kept = [fn.col(f"{INPUT}.`{name}`") for name in rows.df.columns if name not in taken]
    return replace(rows, df=joined.select(*kept, *(fn.col(f"{enrich.other}.`{name}`") for name in taken)))


def _condition(on: list[str] | str, other: str) -> Column:
    if isinstance(on, str):
        return fn.expr(on)
    condition = fn.lit(True)
    for name in on:
        condition = condition & (fn.col(f"{INPUT}.`{name}`") == fn.col(f"{other}.`{name}`"))
    return condition


def _there(df: DataFrame, names: list[str]) -> list[str]:
    """Names that must be columns: Spark would say nothing about some."""
    for name in names:
        if name not in df.columns:
            raise Rejected(f"there is no column {name!r}: there are {', '.join(df.columns)}")
    return names
