"""What the database does when the disk is full in the middle of a group."""

from pathlib import Path

import pytest

from pydanube.kernel.errors import ErrorCode, Unavailable
from pydanube.metadata import Entry, Put
from pydanube.metadata.commands import Outcome, Transact
from pydanube.metadata.sqlite_database import Database, ReadEntry


def put(key: str, value: bytes) -> Transact:
    return Transact((), (Put(key, value),))


def test_a_group_that_finds_no_room_leaves_nothing_behind(tmp_path: Path) -> None:
    database = Database(tmp_path / "metadata.sqlite3")
    database.perform([put("/a", b"1")])
    pages = database._number("PRAGMA page_count")
    database._connection.execute(f"PRAGMA max_page_count = {pages + 4}")
    with pytest.raises(Unavailable, match="nothing was written") as caught:
        database.perform([put("/b", b"small"), put("/c", bytes(200_000))])
    assert caught.value.code is ErrorCode.STORE_FAILED

    # Room again: the store goes on, and no revision was used up.
    database._connection.execute(f"PRAGMA max_page_count = {pages + 1000}")
    [absent, outcome, entry] = database.perform([ReadEntry("/b"), put("/d", b"2"), ReadEntry("/d")])
    assert absent == []
    assert isinstance(outcome, Outcome)
    assert outcome.revision == 2
    assert entry == [Entry("/d", b"2", 2)]
    database.close()
    reopened = Database(tmp_path / "metadata.sqlite3")
    assert reopened.revision == 2
    reopened.close()
