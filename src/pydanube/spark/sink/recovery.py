"""What earlier tries to write the same rows have stored."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from pydanube.client import blocking
from pydanube.client.position import Position
from pydanube.kernel.errors import Rejected
from pydanube.spark.sink.columns import SinkColumns
from pydanube.spark.sink.identity import Attempt, Session

STORED_ROWS_MAX: Final = 20_000_000
"""Rows of earlier tries that are looked through: 16 bytes of each, and what Python adds, are kept."""


@dataclass(slots=True)
class StoredRows:
    """How often each content is stored, by its digest."""

    by_earlier_runs: Counter[bytes] = field(default_factory=Counter)
    by_same_writer: Counter[bytes] = field(default_factory=Counter)
    sessions: set[Session] = field(default_factory=set)
    """Producers of earlier runs."""


class Recovery:
    """Looks through the ends of a topic's partitions for the rows of one batch."""

    def __init__(self, client: blocking.Client, attempt: Attempt, columns: SinkColumns, writer: str) -> None:
        self._client = client
        self._attempt = attempt
        self._columns = columns
        self._writer = writer

    def stored(self, topic: str, floors: Mapping[str, int]) -> StoredRows:
        """Everything earlier tries stored in these partitions behind the floors, and will ever store.

        A producer of an earlier run may still be alive, or have messages on their way. Opening its name shuts it out;
        then nothing can be added any more to what is found by looking again.
        """
        shut_out: set[Session] = set()
        while True:
            found = self._look(topic, floors)
            if found.sessions <= shut_out:
                return found
            for session in sorted(found.sessions - shut_out):
                self._shut_out(session, floors)
            shut_out |= found.sessions

    def floor(self, part: str, count: int) -> int:
        """An offset that has all `count` messages behind it that this writer has stored in this run."""
        storage = self._client.history.storage(part)
        mine = Session(self._attempt.run, self._writer)
        back = count
        while True:
            floor = max(storage.start_offset, storage.next_offset - back)
            found = sum(rows.num_rows for session, rows in self._rows(part, floor) if session == mine)
            if found >= count or floor == storage.start_offset:
                return floor
            back *= 4

    def samples(
        self, topic: str, floors: Mapping[str, int], wanted: set[bytes]
    ) -> dict[bytes, tuple[str, pa.Table]]:
        """For each of these contents, a stored row that has it, and where that is."""
        found: dict[bytes, tuple[str, pa.Table]] = {}
        for part, floor in floors.items():
            for _, rows in self._rows(part, floor):
                for place, digest in enumerate(self._columns.digests(topic, rows)):
                    if digest in wanted and digest not in found:
                        found[digest] = (part, rows.slice(place, 1).select(list(self._columns.sources)))
        return found

    def _look(self, topic: str, floors: Mapping[str, int]) -> StoredRows:
        found = StoredRows()
        seen = 0
        for part, floor in floors.items():
            for session, rows in self._rows(part, floor):
                seen += rows.num_rows
                if seen > STORED_ROWS_MAX:
                    raise Rejected(
                        f"{topic}: batch {self._attempt.batch} of {self._attempt.write} has stored more than "
                        f"{STORED_ROWS_MAX} rows already, too many to be compared: write smaller batches"
                    )
                if session.run != self._attempt.run:
                    found.sessions.add(session)
                    found.by_earlier_runs.update(self._columns.digests(topic, rows))
                elif session.writer == self._writer:
                    found.by_same_writer.update(self._columns.digests(topic, rows))
        return found

    def _shut_out(self, session: Session, parts: Iterable[str]) -> None:
        earlier = Attempt(self._attempt.write, session.run, self._attempt.batch, has_ledger=True)
        for part in parts:
            with self._client.producer(part, name=earlier.producer_name(session.writer)):
                pass

    def _rows(self, part: str, floor: int) -> Iterator[tuple[Session, pa.Table]]:
        """The rows of this write behind the floor, those of one producer at a time, in order."""
        storage = self._client.history.storage(part)
        start, stop = max(floor, storage.start_offset), storage.next_offset
        if start >= stop:
            return
        span = {"start": Position.offset(start), "end": Position.offset(stop)}
        with self._client.reader(part, **span) as reader:
            for batch in reader.batches():
                names = batch.column("producer_name")
                for name, session in self._attempt.sessions(names.dictionary.to_pylist()).items():
                    rows = pa.Table.from_batches([batch.filter(pc.equal(names, name))])
                    if rows.num_rows:
                        yield session, rows
