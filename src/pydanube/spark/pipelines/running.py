"""Running a pipeline: one query, whose batches go to the sink and to the quarantine.

A query that fails is started again from its checkpoint, within bounds, unless trying again cannot help. A stop lets the
batch under way end.
"""

import logging
import re
import time
import uuid
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final

from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from pydanube.client.retries import Patience, Retries
from pydanube.kernel.errors import DanubeError, OutcomeUnknown, Rejected, Unavailable
from pydanube.spark.failures import sentence
from pydanube.spark.pipelines.batch import Batch
from pydanube.spark.pipelines.compiling import Compiled, Decoded, compile_pipeline, decoded
from pydanube.spark.pipelines.document import Pipeline, Source, static
from pydanube.spark.pipelines.durations import parse_duration
from pydanube.spark.pipelines.frames import Surroundings, frame_of
from pydanube.spark.pipelines.own_session import own_session
from pydanube.spark.pipelines.progress import Progress, ProgressMeter
from pydanube.spark.pipelines.sinks import sink_of
from pydanube.spark.pipelines.two_ways import split, together, worked_out

logger = logging.getLogger("pydanube.spark")

RETRIES: Final = Retries(attempts_max=20, backoff=1.0, backoff_max=60.0, seconds_max=1_800.0)
"""Since a batch last went well."""
_LOOK_EVERY_SECONDS: Final = 0.25
_STOP_SECONDS_MAX: Final = 60.0
"""A batch that takes longer is interrupted; it comes again with the next run."""
_FINAL: Final = re.compile(
    r"pydanube\.kernel\.errors\.(Rejected|Conflict|Corrupt)|a payload cannot be decoded"
)


@dataclass(frozen=True, slots=True)
class Observer:
    """Told what happens; every call comes from the thread that runs the pipeline."""

    progress: Callable[[Progress], None] = lambda progress: None
    waiting: Callable[[str, float], None] = lambda why, seconds: None
    """The query failed, and is started again after some seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    was_stopped: bool
    """By a request; otherwise everything there was has been written."""
    progress: Progress | None
    """None: there was nothing to do, or it was no stream."""


@dataclass(frozen=True, slots=True)
class RunSettings:
    checkpoint: str | None = None
    """A directory any executor reaches; streams need one."""
    once: bool = False
    """End when everything is written that was there at the beginning."""
    retries: Retries = RETRIES
    stop: Event = field(default_factory=Event)
    """Set it to end the run after the batch under way."""
    observer: Observer = field(default_factory=Observer)


def run(spark: SparkSession, pipeline: Pipeline, around: Surroundings, settings: RunSettings) -> Outcome:
    """Run a pipeline that has been checked, until it ends, is stopped or cannot go on.

    Raises:
        DanubeError, PySparkException: it cannot go on.
    """
    if all(static(source) for source in pipeline.all_sources.values()):
        _run_batch(own_session(spark, pipeline.spark), pipeline, around)
        return Outcome(was_stopped=False, progress=None)
    if settings.checkpoint is None:
        raise Rejected(
            f"pipeline {pipeline.name} follows a stream and needs a checkpoint: name a directory for it"
        )
    return _Run(spark, pipeline, around, settings).until_end()


def _run_batch(spark: SparkSession, pipeline: Pipeline, around: Surroundings) -> None:
    made = _compiled(spark, pipeline, around, to_its_end=True)
    batch = Batch(str(uuid.uuid4()), str(uuid.uuid4()), 0, is_first=False)
    sink_of(pipeline.sink, around, pipeline=pipeline.name, role="rows")(made.rows, batch)
    if pipeline.quarantine is not None and made.quarantined is not None:
        write = sink_of(pipeline.quarantine, around, pipeline=pipeline.name, role="quarantine")
        write(made.quarantined, batch)


def _compiled(spark: SparkSession, pipeline: Pipeline, around: Surroundings, *, to_its_end: bool) -> Compiled:
    def read(name: str, source: Source) -> Decoded:
        return decoded(source, frame_of(spark, source, around, to_its_end=to_its_end), around)

    return compile_pipeline(pipeline, read, around)


class _Stopped(Exception):
    """Ends a query between two batches."""


class _Run:
    def __init__(
        self, spark: SparkSession, pipeline: Pipeline, around: Surroundings, settings: RunSettings
    ) -> None:
        self._spark = spark
        self._pipeline = pipeline
        self._around = around
        self._settings = settings
        self._is_once = settings.once or pipeline.trigger.available_now
        self._meter = ProgressMeter(around.connection)
        self._patience = Patience(settings.retries)
        self._failure: Exception | None = None
        """What a batch ended with: Spark makes a text of it."""

    def until_end(self) -> Outcome:
        stop = self._settings.stop
        while True:
            try:
                self._run_query()
                return Outcome(stop.is_set(), self._meter.now)
            except (DanubeError, PySparkException, Py4JNetworkError) as error:
                cause, self._failure = self._failure or error, None
                if stop.is_set():
                    return Outcome(was_stopped=True, progress=self._meter.now)
                pause = None if is_final(cause) else self._patience.failed(time.monotonic())
                if pause is None:
                    raise cause from None
                logger.warning(
                    "pipeline=%s failed: %s; again in %.1f s", self._pipeline.name, sentence(cause), pause
                )
                self._settings.observer.waiting(sentence(cause), pause)
                stop.wait(pause)

    def _run_query(self) -> None:
        own = own_session(self._spark, self._pipeline.spark)
        query = self._start(own)
        try:
            caught_up = Event()
            if self._is_once and self._has_topics_only():
                arguments = (query, caught_up)
                Thread(
                    target=_wait_until_caught_up, args=arguments, name="danube-pipeline-end", daemon=True
                ).start()
            while not query.awaitTermination(_LOOK_EVERY_SECONDS):  # type: ignore[arg-type]
                self._look(query)
                if self._settings.stop.is_set() or caught_up.is_set():
                    self._end_after_batch(query)
                    break
            self._look(query)
        finally:
            query.stop()

    def _start(self, spark: SparkSession) -> StreamingQuery:
        pipeline, around = self._pipeline, self._around
        # An end of its own makes a stream of topics come to one in several batches; Spark would make a single one of it.
        ends = self._is_once and self._has_topics_only()
        made = _compiled(spark, pipeline, around, to_its_end=self._is_once)
        rows = made.rows if made.quarantined is None else together(made.rows, made.quarantined)
        writer = (
            rows.writeStream.foreachBatch(self._writing(spark))
            .queryName(pipeline.name)
            .outputMode(pipeline.sink.mode)
            .option("checkpointLocation", self._settings.checkpoint or "")
        )
        if self._is_once and not ends:
            return writer.trigger(availableNow=True).start()
        every = parse_duration(pipeline.trigger.every or "0s")
        return writer.trigger(processingTime="0 seconds" if ends else every.interval).start()

    def _writing(self, spark: SparkSession) -> Callable[[DataFrame, int], None]:
        pipeline, around = self._pipeline, self._around
        write = sink_of(pipeline.sink, around, pipeline=pipeline.name, role="rows")
        quarantine = (
            sink_of(pipeline.quarantine, around, pipeline=pipeline.name, role="quarantine")
            if pipeline.quarantine is not None
            else None
        )
        done = 0

        def write_batch(df: DataFrame, number: int) -> None:
            nonlocal done
            if self._settings.stop.is_set():
                raise _Stopped
            (query,) = spark.streams.active
            batch = Batch(query.id, query.runId, number, is_first=not done)
            # Only the first batch of a run can be one that the sink has already.
            with worked_out(df) if batch.is_first or quarantine is not None else nullcontext():
                rows = df
                if quarantine is not None:
                    rows, bad = split(df)
                    # Bad rows first: when the sink has a batch, nothing of it is missing elsewhere.
                    if not bad.isEmpty():
                        quarantine(bad, batch)
                write(rows, batch)
            done += 1

        def remember_failure(df: DataFrame, number: int) -> None:
            try:
                write_batch(df, number)
            except Exception as error:
                self._failure = error
                raise

        return remember_failure

    def _look(self, query: StreamingQuery) -> None:
        if self._meter.take(query.recentProgress) and self._meter.now is not None:
            self._patience.succeeded()
            self._settings.observer.progress(self._meter.now)

    def _end_after_batch(self, query: StreamingQuery) -> None:
        """Also after a batch without rows, which is when Spark emits what has become complete."""
        until = time.monotonic() + _STOP_SECONDS_MAX
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            if query.awaitTermination(_LOOK_EVERY_SECONDS):  # type: ignore[arg-type]
                break
        query.stop()

    def _has_topics_only(self) -> bool:
        followed = [each for each in self._pipeline.all_sources.values() if not static(each)]
        return all(each.topic is not None or each.topics is not None for each in followed)


def is_final(error: BaseException) -> bool:
    """Whether trying again cannot help."""
    if isinstance(error, DanubeError):
        return not isinstance(error, (Unavailable, OutcomeUnknown))
    # Behind this Spark shows the plan, in which there may be any words.
    text = str(error).partition("=== Streaming Query ===")[0]
    return isinstance(error, (AnalysisException, Py4JNetworkError)) or _FINAL.search(text) is not None


def _wait_until_caught_up(query: StreamingQuery, caught_up: Event) -> None:
    try:
        query.processAllAvailable()
    except PySparkException:
        return  # whoever waits for the query hears of it too
    caught_up.set()
