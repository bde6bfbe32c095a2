"""Everything that can be found wrong with a pipeline before Spark starts."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import TopicName
from pydanube.spark.pipelines.checked_yaml import Lines, Problem, unknown
from pydanube.spark.pipelines.checked_yaml import Path as Place
from pydanube.spark.pipelines.document import (
    SINKS,
    SOURCES,
    Case,
    Decode,
    FilesSink,
    Pipeline,
    Sink,
    Source,
    TableSink,
    TopicSink,
    given,
    static,
)
from pydanube.spark.pipelines.durations import parse_duration
from pydanube.spark.pipelines.environment import has_variables, missing_variables
from pydanube.spark.pipelines.flow_rules import check_steps
from pydanube.spark.pipelines.partitioning import parse_partitioning
from pydanube.spark.source.offsets import Wanted, parse_moment

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,47}")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_]\w*")
_SECRET: Final = re.compile(r"password|passwd|secret|token|access[._-]?key|credential", re.IGNORECASE)
INPUT: Final = "input"
"""What a step works on, in SQL."""


def check(pipeline: Pipeline, lines: Lines, folder: Path | None) -> Iterator[Problem]:
    """All problems; `folder` is where files and modules named in it are looked for."""
    if _NAME.fullmatch(pipeline.name) is None:
        yield lines.problem(
            ("name",), f"invalid name {pipeline.name!r}: 1 to 48 letters, digits, '-' and '_', no sign first"
        )
    for place, source in _placed_sources(pipeline):
        yield from _check_source(source, place, pipeline, lines, folder)
    yield from _check_names(pipeline, lines)
    yield from check_steps(pipeline, lines, folder)
    yield from _check_sink(pipeline.sink, ("sink",), lines)
    if pipeline.quarantine is not None:
        yield from _check_sink(pipeline.quarantine, ("quarantine",), lines)
        if pipeline.quarantine.mode != "append":
            yield lines.problem(
                ("quarantine", "mode"), "quarantined rows are only ever added: leave mode away"
            )
    yield from _check_quarantine(pipeline, lines)
    yield from _check_trigger(pipeline, lines)
    yield from _check_cases(pipeline, lines)
    yield from _check_secrets(pipeline, lines)


def _placed_sources(pipeline: Pipeline) -> Iterator[tuple[Place, Source]]:
    if pipeline.source is not None:
        yield ("source",), pipeline.source
    for name, source in pipeline.sources.items():
        yield ("sources", name), source


def exactly_one(what: str, found: list[str], known: Iterable[str]) -> str | None:
    """What to say unless there is exactly one."""
    if len(found) == 1:
        return None
    names = ", ".join(known)
    return (
        f"{' and '.join(found)} are given: keep one {what}"
        if found
        else f"no {what} is given: it needs one of {names}"
    )


def _check_names(pipeline: Pipeline, lines: Lines) -> Iterator[Problem]:
    if not pipeline.all_sources:
        yield lines.problem((), "there is no source: give `source`, or several as `sources`")
    if pipeline.source is not None and "source" in pipeline.sources:
        yield lines.problem(("sources", "source"), "`source` is called that already: choose another name")
    taken = set(pipeline.all_sources)
    for name in pipeline.sources:
        yield from _check_identifier(name, ("sources", name), lines)
    for number, step in enumerate(pipeline.steps):
        if step.name is None:
            continue
        place: Place = ("steps", number, "name")
        yield from _check_identifier(step.name, place, lines)
        if step.name in taken:
            yield lines.problem(place, f"{step.name!r} is the name of something else already")
        taken.add(step.name)


def _check_identifier(name: str, place: Place, lines: Lines) -> Iterator[Problem]:
    if _IDENTIFIER.fullmatch(name) is None or name.lower() == INPUT:
        yield lines.problem(
            place,
            f"invalid name {name!r}: letters, digits and '_', no digit first; `{INPUT}` has a meaning in SQL",
        )


# ── sources ─────────────────────────────────────────────────────────────────────────────────────


def _check_source(
    source: Source, place: Place, pipeline: Pipeline, lines: Lines, folder: Path | None
) -> Iterator[Problem]:
    found = given(source)
    if text := exactly_one("source", found, SOURCES):
        yield lines.problem(place, text)
        return
    kind = found[0]
    is_topic = kind in ("topic", "topics")
    topics = [source.topic] if source.topic is not None else source.topics or []
    if kind == "topics" and not topics:
        yield lines.problem((*place, "topics"), "the list is empty")
    for topic in topics:
        yield from _check_topic(topic, (*place, kind), lines)
    yield from _check_start(source, place, lines, is_topic=is_topic)
    for limit in ("max_messages_per_trigger", "max_bytes_per_trigger"):
        value = getattr(source, limit)
        if value is not None and not is_topic:
            yield lines.problem((*place, limit), "only topics have this limit: use the options of the source")
        elif value is not None and value <= 0:
            yield lines.problem((*place, limit), f"invalid limit {value}: expected 1 or more")
    if (
        source.files is not None
        and not static(source)
        and source.columns is None
        and source.files.format != "text"
    ):
        yield lines.problem(
            place,
            "files that are followed need `columns`, such as 'id BIGINT, at TIMESTAMP'; or set static: true",
        )
    if source.watermark is not None:
        yield from _check_duration(source.watermark.delay, (*place, "watermark", "delay"), lines)
        if static(source):
            yield lines.problem((*place, "watermark"), "what is read whole needs no watermark")
    if source.decode is not None:
        yield from _check_decode(source.decode, kind, (*place, "decode"), lines, folder)
        is_batch = all(static(each) for each in pipeline.all_sources.values())
        if static(source) and not is_batch and source.decode.on_error == "quarantine":
            yield lines.problem(
                (*place, "decode", "on_error"),
                "a static source beside a stream is decoded for each batch anew: use permissive or fail",
            )


def _check_start(source: Source, place: Place, lines: Lines, *, is_topic: bool) -> Iterator[Problem]:
    start = source.start
    if start is None:
        return
    if not is_topic:
        yield lines.problem((*place, "start"), "only topics have this: use the options of the source")
        return
    try:
        if isinstance(start, dict) or start in ("earliest", "latest"):
            Wanted.of(start, otherwise="earliest", what="start")
        else:
            parse_moment(start, what="start")
    except Rejected as error:
        yield lines.problem((*place, "start"), error.text)


def _check_decode(
    decode: Decode, kind: str, place: Place, lines: Lines, folder: Path | None
) -> Iterator[Problem]:
    if kind in ("jdbc", "table"):
        yield lines.problem(place, f"the columns of {kind} have types: there is nothing to decode")
    if (decode.schema_file is None) != (decode.schema_type is None) and decode.schema_type not in (
        "string",
        "number",
        "bytes",
    ):
        yield lines.problem(place, "schema_file and schema_type go together: give both or none")
    if decode.schema_type is not None and (decode.subject is not None or decode.version is not None):
        yield lines.problem(
            place, "a schema comes from the registry or from a file: keep subject or schema_file"
        )
    if decode.schema_file is not None and folder is not None and not (folder / decode.schema_file).is_file():
        yield lines.problem((*place, "schema_file"), f"there is no file {folder / decode.schema_file}")
    if decode.subject is None and decode.schema_type is None and kind != "topic":
        yield lines.problem(place, f"which schema? give subject or schema_file: {kind} does not say")


# ── sinks ───────────────────────────────────────────────────────────────────────────────────────


def _check_sink(sink: Sink, place: Place, lines: Lines) -> Iterator[Problem]:
    found = given(sink)
    if text := exactly_one("sink", found, SINKS):
        yield lines.problem(place, f"{text} (write `console: {{}}` for one without settings)")
        return
    kind = found[0]
    below = (*place, kind)
    match getattr(sink, kind):
        case TopicSink(topic=topic, partitions=partitions):
            yield from _check_topic(topic, (*below, "topic"), lines)
            if partitions is not None and not 1 <= partitions <= 1_000:
                yield lines.problem(
                    (*below, "partitions"), f"invalid number {partitions}: expected 1 to 1,000"
                )
        case str() as topic if kind == "topic":
            yield from _check_topic(topic, below, lines)
        case TableSink(partition_by=by) | FilesSink(partition_by=by) as table:
            for number, text in enumerate(by):
                yield from _check_partitioning(text, kind, (*below, "partition_by", number), lines)
            if kind == "delta" and isinstance(table, TableSink) and table.warehouse is not None:
                yield lines.problem(
                    (*below, "warehouse"), "only Iceberg has this: give Delta a path as `table`"
                )
        case _:
            pass
    if kind == "iceberg":
        yield from _check_iceberg_name(getattr(sink, kind), below, lines)
    if sink.mode == "update" and kind in ("iceberg", "delta", "parquet"):
        yield lines.problem(
            (*place, "mode"),
            "a table would get each state of a row beside the one before: use append, or complete",
        )
    if sink.mode == "complete" and kind in ("jdbc", "kafka", "topic"):
        yield lines.problem(
            (*place, "mode"), f"{kind} cannot be overwritten: use append, or update to get what changed"
        )


def _check_iceberg_name(table: TableSink | str, place: Place, lines: Lines) -> Iterator[Problem]:
    name = table if isinstance(table, str) else table.table
    parts = name.split(".")
    if len(parts) < 3 or not all(_IDENTIFIER.fullmatch(part) for part in parts):
        yield lines.problem(
            place, f"invalid table {name!r}: name catalog, namespace and table, such as lake.shop.orders"
        )


def _check_partitioning(text: str, kind: str, place: Place, lines: Lines) -> Iterator[Problem]:
    try:
        made = parse_partitioning(text)
    except Rejected as error:
        yield lines.problem(place, error.text)
        return
    if made.transform is not None and kind != "iceberg":
        yield lines.problem(
            place, f"{kind} has partitions by column only: make a column of {text!r} in a step"
        )


def _check_quarantine(pipeline: Pipeline, lines: Lines) -> Iterator[Problem]:
    quarantining = [
        place
        for place, source in _placed_sources(pipeline)
        if source.decode is not None and source.decode.on_error == "quarantine"
    ]
    if pipeline.quarantine is None:
        for place in quarantining:
            yield lines.problem(
                (*place, "decode"),
                "bad messages would be lost: add `quarantine`, or set on_error to permissive or fail",
            )
    elif not quarantining:
        yield lines.problem(
            ("quarantine",), "no source has decode with on_error: quarantine, so nothing ever goes here"
        )


# ── the rest ────────────────────────────────────────────────────────────────────────────────────


def _check_trigger(pipeline: Pipeline, lines: Lines) -> Iterator[Problem]:
    every = pipeline.trigger.every
    if every is not None:
        yield from _check_duration(every, ("trigger", "every"), lines)
        if pipeline.trigger.available_now:
            yield lines.problem(("trigger",), "every and available_now exclude each other: keep one")


def _check_cases(pipeline: Pipeline, lines: Lines) -> Iterator[Problem]:
    names: set[str] = set()
    for number, case in enumerate(pipeline.tests):
        place: Place = ("tests", number)
        if case.name in names:
            yield lines.problem((*place, "name"), f"there is a test {case.name!r} already")
        names.add(case.name)
        yield from _check_given(case, place, pipeline, lines)
        if case.quarantined and pipeline.quarantine is None:
            yield lines.problem((*place, "quarantined"), "this pipeline quarantines nothing")


def _check_given(case: Case, place: Place, pipeline: Pipeline, lines: Lines) -> Iterator[Problem]:
    sources = pipeline.all_sources
    if isinstance(case.given, list):
        if len(sources) > 1:
            yield lines.problem((*place, "given"), f"rows of which source? there are {', '.join(sources)}")
        return
    for name in case.given:
        if name not in sources:
            yield lines.problem((*place, "given", name), unknown("source", name, sources))


def _check_secrets(pipeline: Pipeline, lines: Lines) -> Iterator[Problem]:
    """Secrets are warned of; variables that a value takes from the environment must be there when it runs."""
    for place, key, value in _texts(msgspec.to_builtins(pipeline), ()):
        is_secret = _SECRET.search(key) is not None or "password=" in value
        if is_secret and key != "password_env" and not has_variables(value):
            yield lines.warning(
                place, "whoever has this file has the secret in it: write ${env:NAME} instead"
            )
        for name in missing_variables(value):
            yield lines.warning(place, f"the variable {name} is not set here")


def _texts(value: object, place: Place) -> Iterator[tuple[Place, str, str]]:
    """Every text with the key it stands under; rows of tests are nobody's secrets."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            if not (place == () and key == "tests"):
                yield from _texts(below, (*place, str(key)))
    elif isinstance(value, list):
        for number, below in enumerate(value):
            yield from _texts(below, (*place, number))
    elif isinstance(value, str) and place:
        yield place, str(place[-1]), value


def _check_topic(topic: str, place: Place, lines: Lines) -> Iterator[Problem]:
    try:
        TopicName.parse(topic)
    except Rejected as error:
        yield lines.problem(place, error.text)


def _check_duration(text: str, place: Place, lines: Lines) -> Iterator[Problem]:
    try:
        parse_duration(text)
    except Rejected as error:
        yield lines.problem(place, error.text)
