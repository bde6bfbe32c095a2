"""A topic of its own in which a write notes how far it got: what Spark's checkpoint does not keep for a sink.

Two kinds of notes. Before the first message of a write goes to a topic or partition, a task notes where its end is:
everything of this write comes behind. When all rows of a batch are stored, the driver notes the batch, the run that
wrote it, the ends of all topics and partitions, and the sequences of its writers: everything of later batches comes
behind those ends, and with higher sequences.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from pydanube.client import blocking
from pydanube.client.position import Position
from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode
from pydanube.spark.sink.identity import DRIVER, Attempt

NOTES_AT_ONCE: Final = 4
"""Notes read at first, going back; more each time, while no batch was found."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What the notes say."""

    batch: int = -1
    """The last one that is stored completely."""
    run: str = ""
    """Which one stored it."""
    rows: int = 0
    """How many it had."""
    ends: Mapping[str, int] = field(default_factory=dict)
    """By topic or partition: all rows of later batches are behind."""
    sequences: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By topic or partition: how many messages each writer of the run has stored there."""

    def sequence(self, run: str, part: str, writer: str) -> int:
        """How many messages a writer of this run has stored in batches that are complete."""
        return self.sequences.get(part, {}).get(writer, 0) if run == self.run else 0


class Ledger:
    """Of one write."""

    def __init__(self, client: blocking.Client, topic: str, attempt: Attempt) -> None:
        self._client = client
        self._topic = topic
        self._attempt = attempt

    def progress(self) -> Progress:
        """How far the write got; nothing if it never began."""
        begins: dict[str, int] = {}
        for note in self._notes_backwards():
            for part, offset in note.get("begins", {}).items():
                begins[part] = min(offset, begins.get(part, offset))
            if "ends" in note:
                ends = {**begins, **note["ends"]}
                return Progress(note["batch"], note["run"], note["rows"], ends, note["sequences"])
        return Progress(ends=begins)

    def begin(self, writer: str, begins: Mapping[str, int]) -> None:
        """Note, before anything is written there, where topics and partitions end."""
        self._note(writer, {"begins": dict(begins)})

    def complete(self, progress: Progress) -> None:
        """Note that all rows of a batch are stored."""
        self._note(DRIVER, asdict(progress))

    def _note(self, writer: str, note: Mapping[str, Any]) -> None:
        name = self._attempt.producer_name(writer)
        with self._client.producer(self._topic, name=name) as producer:
            producer.send(json.dumps(note).encode(), key=self._attempt.write)

    def _notes_backwards(self) -> Iterator[dict[str, Any]]:
        """The newest first."""
        try:
            storage = self._client.history.storage(self._topic)
        except DanubeError as error:
            if error.code is ErrorCode.TOPIC_UNKNOWN:
                return
            raise
        stop, count = storage.next_offset, NOTES_AT_ONCE
        while stop > storage.start_offset:
            start = max(storage.start_offset, stop - count)
            yield from reversed(self._notes(start, stop))
            stop, count = start, count * 4

    def _notes(self, start: int, stop: int) -> list[dict[str, Any]]:
        span = {"start": Position.offset(start), "end": Position.offset(stop)}
        with self._client.reader(self._topic, **span) as reader:
            payloads = [
                payload for batch in reader.batches() for payload in batch.column("payload").to_pylist()
            ]
        try:
            return [dict(json.loads(payload)) for payload in payloads]
        except ValueError as error:
            raise Corrupt(
                f"{self._topic} has a message that is no note of a write: nothing else may publish to it; "
                "choose another topic with the option ledger"
            ) from error
