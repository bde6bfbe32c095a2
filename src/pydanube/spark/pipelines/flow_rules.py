"""What steps may do to what flows through them: references, streams, watermarks, state.

Spark refuses the same when the query starts, in words about its plans; here it is said of the line that causes it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydanube.kernel.errors import Rejected
from pydanube.spark.pipelines.checked_yaml import Lines, Problem, unknown
from pydanube.spark.pipelines.checked_yaml import Path as Place
from pydanube.spark.pipelines.document import (
    OPERATIONS,
    Dedupe,
    Join,
    Pipeline,
    Source,
    Step,
    Window,
    given,
    static,
)
from pydanube.spark.pipelines.durations import Duration, parse_duration
from pydanube.spark.pipelines.functions import missing_function
from pydanube.spark.pipelines.sql_text import unbalanced, words

STREAM_JOINS: Final = ("inner", "left", "right", "full", "left_semi")
TABLE_JOINS: Final = ("inner", "left", "left_semi", "left_anti")
_ANY: Final = Duration(0)


@dataclass(frozen=True, slots=True)
class Flow:
    """What is known of the rows of a source or step."""

    is_stream: bool
    time: str | None = None
    """The column with a watermark."""
    delay: Duration = _ANY
    has_window: bool = False
    """Aggregates have been made, so that Spark keeps no state behind."""
    may_aggregate: bool = False
    """Or SQL or a function may have done so."""
    has_stream_join: bool = False


def check_steps(pipeline: Pipeline, lines: Lines, folder: Path | None) -> Iterator[Problem]:
    """Walk through the steps in order."""
    walk = _Walk(pipeline, lines, folder)
    for number, step in enumerate(pipeline.steps):
        walk.step(step, ("steps", number))
    walk.end()
    yield from walk.problems


class _Walk:
    def __init__(self, pipeline: Pipeline, lines: Lines, folder: Path | None) -> None:
        self.problems: list[Problem] = []
        self._pipeline = pipeline
        self._lines = lines
        self._folder = folder
        self._known = {name: _flow_of(source) for name, source in pipeline.all_sources.items()}
        self._now: Flow | None = next(iter(self._known.values())) if len(self._known) == 1 else None

    def step(self, step: Step, place: Place) -> None:
        found = given(step)
        if len(found) != 1:
            said = f"{' and '.join(found)} are given" if found else "no operation is given"
            self._say(place, f"{said}: a step has exactly one of {', '.join(OPERATIONS)}")
        before = self._now
        if step.source is not None:
            before = self._named(step.source, (*place, "from"))
        elif before is None and found != ["sql"]:
            self._say(place, f"which rows? there are several sources: say `from: {' or '.join(self._known)}`")
        before = before or Flow(is_stream=False)
        after = before
        for kind in found:
            after = self._after(kind, step, before, (*place, kind))
        self._now = after
        if step.name is not None:
            self._known[step.name] = after

    def end(self) -> None:
        flow = self._now
        if flow is None:
            if self._known:
                names = ", ".join(self._known)
                self._say(
                    (), f"which rows go to the sink? there are the sources {names} and no step that takes one"
                )
            return
        mode = self._pipeline.sink.mode
        if mode == "complete" and flow.is_stream:
            if not (flow.has_window or flow.may_aggregate):
                self._say(("sink", "mode"), "complete is for aggregates: add a window step, or use append")
            elif flow.has_stream_join:
                self._say(("sink", "mode"), "joined streams can only be appended: use append")

    def _after(self, kind: str, step: Step, before: Flow, place: Place) -> Flow:
        match getattr(step, kind):
            case str() as text:
                self._sql(text, place)
                return self._of_sql(text, before) if kind == "sql" else before
            case dict() as columns:
                for name, text in columns.items():
                    self._sql(str(text), (*place, name))
                return before
            case list() as columns:
                if not columns:
                    self._say(place, "the list is empty")
                if kind == "select":
                    for number, text in enumerate(columns):
                        self._sql(text, (*place, number))
                return before
            case Dedupe() as dedupe:
                return self._dedupe(dedupe, before, place)
            case Window() as window:
                return self._window(window, before, place)
            case Join() as join:
                return self._join(join, before, place)
            case _ if step.enrich is not None:
                other = self._named(step.enrich.other, (*place, "with"))
                if other is not None and other.is_stream:
                    self._say(
                        (*place, "with"),
                        f"{step.enrich.other} is a stream: set static: true there, or use join",
                    )
                self._on(step.enrich.on, (*place, "on"))
                return before
            case _ if step.function is not None:
                if why := missing_function(step.function.name, self._folder):
                    self._say((*place, "name"), why)
                return replace(before, may_aggregate=True)
        return before

    def _of_sql(self, text: str, before: Flow) -> Flow:
        named = [flow for name, flow in self._known.items() if name.lower() in words(text)]
        used = [*named, before] if "input" in words(text) or not named else named
        streams = [flow for flow in used if flow.is_stream]
        flow = streams[0] if streams else used[0]
        return replace(flow, may_aggregate=True)

    def _dedupe(self, dedupe: Dedupe, before: Flow, place: Place) -> Flow:
        if not dedupe.by:
            self._say((*place, "by"), "by which columns? the list is empty")
        within = self._duration(dedupe.within, (*place, "within"))
        if not before.is_stream:
            return before
        self._no_window_before(before, place)
        if within == _ANY:
            self._say((*place, "within"), "nothing can be told apart within no time: give one, such as 10m")
        return self._watermarked(before, dedupe.time, within, (*place, "within"), place)

    def _window(self, window: Window, before: Flow, place: Place) -> Flow:
        size = self._duration(window.size, (*place, "size"))
        if size == _ANY:
            self._say((*place, "size"), "a window without length holds nothing: give one, such as 5m")
        if window.slide is not None:
            slide = self._duration(window.slide, (*place, "slide"))
            if slide is not None and size is not None and not _ANY < slide <= size:
                self._say(
                    (*place, "slide"), f"{window.slide!r} is not between nothing and the size {window.size!r}"
                )
        if not window.aggregate:
            self._say((*place, "aggregate"), "there is nothing to make: give columns, each with its SQL")
        for name, text in window.aggregate.items():
            self._sql(text, (*place, "aggregate", name))
        late = None if window.late_by is None else self._duration(window.late_by, (*place, "late_by"))
        if not before.is_stream:
            return before
        self._no_window_before(before, place)
        after = self._watermarked(before, window.time, late, (*place, "late_by"), place)
        return replace(after, has_window=True)

    def _join(self, join: Join, before: Flow, place: Place) -> Flow:
        other = self._named(join.other, (*place, "with"))
        self._on(join.on, (*place, "on"))
        within = None if join.within is None else self._duration(join.within, (*place, "within"))
        if other is None:
            return before
        if not (before.is_stream and other.is_stream):
            if other.is_stream:
                self._say(
                    (*place, "with"), f"begin with the stream: `from: {join.other}`, and join the table to it"
                )
            elif before.is_stream and join.type not in TABLE_JOINS:
                self._say(
                    (*place, "type"),
                    f"{join.type} of a stream with a table never ends: use {', '.join(TABLE_JOINS)}",
                )
            return before
        if join.type not in STREAM_JOINS:
            self._say(
                (*place, "type"), f"{join.type} of two streams never ends: use {', '.join(STREAM_JOINS)}"
            )
        if join.within is None:
            self._say(
                place, "two streams are joined: say how far apart in time rows may be, by `within: 10m`"
            )
        elif within == _ANY:
            self._say((*place, "within"), "give a time, such as 10m")
        for flow, name in ((before, "what comes in"), (other, join.other)):
            if flow.time is None:
                self._say(
                    place,
                    f"two streams are joined and {name} has no watermark: set `watermark` of its source",
                )
            self._no_window_before(flow, place)
        return replace(before, has_stream_join=True)

    def _watermarked(
        self, before: Flow, time: str, delay: Duration | None, delay_place: Place, place: Place
    ) -> Flow:
        """A stream has one watermark: Spark takes no second one."""
        if before.time is None:
            return replace(before, time=time, delay=delay or _ANY)
        if before.time != time:
            self._say(
                place,
                f"rows have a watermark on {before.time} already, and no second one on {time}: set `time: {before.time}`",
            )
        elif delay is not None and delay != before.delay:
            self._say(
                delay_place,
                f"the watermark on {time} is {before.delay.interval} late already: write the same here",
            )
        return before

    def _no_window_before(self, flow: Flow, place: Place) -> None:
        if flow.has_window and flow.is_stream:
            self._say(
                place,
                "behind a window no state can be kept: put this step before it, or into a second pipeline",
            )

    def _named(self, name: str, place: Place) -> Flow | None:
        if name not in self._known:
            self._say(place, unknown("source or earlier step", name, self._known))
            return None
        return self._known[name]

    def _on(self, on: list[str] | str, place: Place) -> None:
        if isinstance(on, str):
            self._sql(on, place)
        elif not on:
            self._say(place, "by which columns? the list is empty")

    def _duration(self, text: str, place: Place) -> Duration | None:
        try:
            return parse_duration(text)
        except Rejected as error:
            self._say(place, error.text)
            return None

    def _sql(self, text: str, place: Place) -> None:
        if wrong := unbalanced(text):
            self._say(place, f"this is no SQL: {wrong}")

    def _say(self, place: Place, text: str) -> None:
        self.problems.append(self._lines.problem(place, text))


def _flow_of(source: Source) -> Flow:
    if static(source):
        return Flow(is_stream=False)
    if source.watermark is None:
        return Flow(is_stream=True)
    try:
        delay = parse_duration(source.watermark.delay)
    except Rejected:
        delay = _ANY
    return Flow(is_stream=True, time=source.watermark.column, delay=delay)
