"""All history of topics read and compared with what was written: by tasks of Spark, a segment each."""

import json
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from pydanube.client import blocking
from pydanube.client.position import Position
from pydanube.history.export import file_checksum
from pydanube.history.segment import SegmentDescriptor
from pydanube.history.segment_file import Findings, verify_segment
from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.spark.connection import Connection
from pydanube.spark.maintenance.placed_segment import PlacedSegment, local_file
from pydanube.spark.maintenance.rewriting import Watch, unwatched
from pydanube.spark.maintenance.sealed_history import Target
from pydanube.spark.maintenance.storage_calls import StorageCalls
from pydanube.spark.topics import resolve

SEGMENTS_AT_ONCE_MAX: Final = 64
"""Looked at by one Spark job; the next ones follow, so that progress is seen."""
FINDINGS_MAX: Final = 10_000
"""More are counted, not told."""

_NOT_OF_THE_FILE: Final = frozenset({"segment_id", "created_at", "etag"})
"""Given by the store, and by the broker that took it: no byte of the file need say the same."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it was written."""

    topic: str
    place: str
    """A file, or a stretch of offsets."""
    what: str
    """With row group and column, where that can be told."""


class TopicAudit(msgspec.Struct, kw_only=True):
    topic: str
    start_offset: int
    sealed_end: int
    next_offset: int
    segments: int = 0
    messages: int = 0
    """Of segments, read and found good; removed ones count."""
    size: int = 0
    payload_bytes: int = 0
    unsealed: int = 0
    """Messages that were read from the broker, in order and without a gap."""
    gone: int = 0
    """Segments that retention, or a replacement, took before they were read."""


class AuditReport(msgspec.Struct, kw_only=True):
    topics: list[TopicAudit] = []
    findings: list[Finding] = []
    findings_left_out: int = 0

    def add(self, findings: Sequence[Finding]) -> None:
        room = FINDINGS_MAX - len(self.findings)
        self.findings += findings[:room]
        self.findings_left_out += len(findings[room:])


class _Examined(msgspec.Struct, frozen=True, kw_only=True):
    """What a task says of one segment."""

    number: int
    messages: int = 0
    problems: list[str] = []
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class _Task:
    topic: str
    segment: PlacedSegment
    admin: Connection
    store: Mapping[str, str] = field(default_factory=dict, repr=False)

    def examine(self, number: int) -> _Examined:
        descriptor = self.segment.descriptor
        with StorageCalls(self.admin) as calls:
            try:
                with local_file(self.segment, self.topic, calls, self.store) as file:
                    findings = _verify(file, descriptor)
            except DanubeError as error:
                return self._failed(number, calls, error)
            except (ArithmeticError, BrokenProcessPool, LookupError, ValueError) as error:
                # What Arrow and numpy say, or do, about numbers in a footer that cannot be.
                return _Examined(number=number, problems=[f"it cannot be decoded ({error})"])
            problems = list(findings.problems)
            if findings.descriptor is not None:
                problems += _differences(findings.descriptor, descriptor)
            if problems and not self._is_listed(calls):
                return _Examined(number=number, is_gone=True)
        return _Examined(number=number, messages=findings.messages, problems=problems)

    def _failed(self, number: int, calls: StorageCalls, error: DanubeError) -> _Examined:
        if not self._is_listed(calls):
            return _Examined(number=number, is_gone=True)
        return _Examined(number=number, problems=[error.text])

    def _is_listed(self, calls: StorageCalls) -> bool:
        """Whether the topic still has that segment: what it has no more cannot be damaged."""
        name = self.segment.descriptor.segment_id
        return any(each.descriptor.segment_id == name for each in calls.segments(self.topic))


def _verify(file: Path, descriptor: SegmentDescriptor) -> Findings:
    """What is wrong with a file; one that is not as it was written may end the process that reads it."""
    if file_checksum(file) == descriptor.checksum:
        return verify_segment(file)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as apart:
        return apart.submit(verify_segment, file).result()


def audit(target: Target, topics: Sequence[str], watch: Watch = unwatched) -> AuditReport:
    """Read all segments of these topics, and what is not sealed of them; damage is told, not raised.

    Raises:
        Rejected: a topic does not exist.
        Unavailable: the broker does not answer.
    """
    report = AuditReport()
    tasks: list[_Task] = []
    owners: list[TopicAudit] = []
    with target.connection.client() as client, StorageCalls(target.admin) as calls:
        for part in resolve(client, topics):
            facts = calls.describe(part.name)
            segments = calls.segments(part.name)
            found = TopicAudit(
                topic=part.name,
                start_offset=facts.start_offset,
                sealed_end=segments[-1].descriptor.next_offset if segments else facts.sealed_end,
                next_offset=facts.next_offset,
                segments=len(segments),
                size=sum(each.descriptor.size for each in segments),
                payload_bytes=sum(each.descriptor.payload_bytes for each in segments),
            )
            report.topics.append(found)
            report.add(list(check_order(part.name, facts.start_offset, segments)))
            report.add(_read_tail(client, calls, found))
            tasks += [_Task(part.name, each, target.admin, target.store) for each in segments]
            owners += [found] * len(segments)
    for examined in _examine(target.spark, tasks, watch):
        owner, task = owners[examined.number], tasks[examined.number]
        owner.messages += examined.messages
        owner.gone += examined.is_gone
        place = task.segment.place
        report.add([Finding(topic=task.topic, place=place, what=what) for what in examined.problems])
    return report


def check_order(topic: str, start_offset: int, segments: Sequence[PlacedSegment]) -> Iterator[Finding]:
    """Whether segments, as the broker lists them, follow each other without a gap from the topic's first offset on."""
    expected = start_offset
    for number, placed in enumerate(segments):
        segment = placed.descriptor
        # Retention may end inside of the oldest one.
        is_cut = number == 0 and segment.start_offset <= expected <= segment.end_offset
        if segment.start_offset != expected and not is_cut:
            gap = segment.start_offset > expected
            what = (
                f"offsets {expected} to {segment.start_offset - 1} are missing before it: restore their segment from a copy"
                if gap
                else f"it begins at offset {segment.start_offset}, which the one before holds already"
            )
            yield Finding(topic=topic, place=placed.place, what=what)
        if segment.topic_id != segments[0].descriptor.topic_id:
            yield Finding(topic=topic, place=placed.place, what="it belongs to another topic")
        expected = segment.next_offset


def _read_tail(client: blocking.Client, calls: StorageCalls, found: TopicAudit) -> list[Finding]:
    """What is in no segment yet, read from the broker, which checks it against its checksums."""
    start, end = max(found.sealed_end, found.start_offset), found.next_offset
    place = f"offsets {start} to {end - 1}, not sealed"
    problem = ""
    try:
        with client.reader(found.topic, start=Position.offset(start), end=Position.offset(end)) as reader:
            for batch in reader.batches():
                offsets = batch.column("offset").to_numpy()
                expected = start + found.unsealed
                if int(offsets[0]) != expected or int(offsets[-1]) != expected + len(offsets) - 1:
                    problem = f"offset {expected} was to come, {offsets[0]} to {offsets[-1]} came"
                    break
                found.unsealed += len(offsets)
    except DanubeError as error:
        if error.code is not ErrorCode.SEGMENT_CORRUPT:
            raise
        problem = error.text
    if not problem and start + found.unsealed < end:
        problem = f"offsets {start + found.unsealed} to {end - 1} did not come"
    # Sealed meanwhile, some may have been removed or given up since.
    if not problem or calls.describe(found.topic).sealed_end > start:
        return []
    return [Finding(topic=found.topic, place=place, what=problem)]


def _examine(spark: SparkSession, tasks: Sequence[_Task], watch: Watch) -> Iterator[_Examined]:
    if not tasks:
        return
    done = watch(sum(task.segment.descriptor.size for task in tasks))
    for first in range(0, len(tasks), SEGMENTS_AT_ONCE_MAX):
        last = min(first + SEGMENTS_AT_ONCE_MAX, len(tasks))
        some = {number: tasks[number] for number in range(first, last)}
        numbers = spark.range(first, last, 1, numPartitions=last - first)
        for row in numbers.mapInArrow(_work(some), "examined STRING").collect():
            examined = msgspec.convert(json.loads(row.examined), _Examined)
            done(tasks[examined.number].segment.descriptor.size)
            yield examined


def _work(tasks: Mapping[int, _Task]) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                examined = msgspec.json.encode(tasks[number].examine(number)).decode()
                yield pa.RecordBatch.from_pydict({"examined": [examined]})

    return work


def _differences(found: SegmentDescriptor, expected: SegmentDescriptor) -> Iterator[str]:
    for name in SegmentDescriptor.__struct_fields__:
        if name not in _NOT_OF_THE_FILE and getattr(found, name) != getattr(expected, name):
            yield f"{name} is {getattr(found, name)}, the broker remembers {getattr(expected, name)}"
