"""When a sync commits, waits, tidies up and gives up."""

import pytest

from pydanube.kernel.errors import Conflict, Rejected, Unavailable
from pydanube.spark.lakehouse.commits import Commit
from pydanube.spark.lakehouse.pacing import Pace, SyncRun
from pydanube.spark.lakehouse.sync import Outcome

COMMIT = Commit("/d/t", 1, "a", {}, {})
FULL, LAST, NOTHING = Outcome(COMMIT, has_more=True), Outcome(COMMIT), Outcome(None)


class Script:
    """A sync that does as told; waiting is noted, and ends the run when the script does."""

    def __init__(self, *steps: Outcome | Exception) -> None:
        self.steps = list(steps)
        self.events: list[object] = []
        self.tidying: Exception | None = None
        self.now = 0.0

    def step(self) -> Outcome:
        step = self.steps.pop(0)
        self.now += 1.0
        if isinstance(step, Exception):
            raise step
        return step

    def tidy(self, expire_hours: float | None = None) -> None:
        self.events.append(("tidy", expire_hours))
        if self.tidying is not None:
            raise self.tidying

    def wait(self, seconds: float) -> bool:
        self.events.append(seconds)
        return not self.steps

    def run(self, **pace: float) -> SyncRun:
        return SyncRun(self, Pace(**pace), wait=self.wait, clock=lambda: self.now)  # type: ignore[arg-type]


def test_backlog_is_not_waited_for_and_then_each_interval_has_its_commit() -> None:
    script = Script(FULL, FULL, LAST, NOTHING, LAST)
    script.run(commit_interval_seconds=10).forever()
    assert script.events == [0.0, 0.0, 9.0, 9.0, 9.0]


def test_once_ends_when_all_that_was_there_is_in() -> None:
    script = Script(FULL, LAST, LAST)
    script.run().once()
    assert len(script.steps) == 1
    nothing = Script(NOTHING)
    nothing.run().once()
    assert nothing.events == []


def test_trouble_that_passes_is_waited_out_within_bounds() -> None:
    away = Unavailable("away")
    script = Script(away, away, LAST, away, LAST)
    script.run(failures_max=3).once()
    assert script.events == [1.0, 0.0, 2.0, 0.0]
    hopeless = Script(*[away] * 9)
    with pytest.raises(Unavailable):
        hopeless.run(failures_max=8).once()
    assert [each for each in hopeless.events if each] == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    with pytest.raises(Conflict):
        Script(Conflict("two of us")).run().once()


def test_every_so_many_commits_the_table_is_tidied() -> None:
    script = Script(FULL, FULL, FULL, FULL, LAST)
    script.run(compact_every=2, expire_hours=5.0).once()
    assert [each for each in script.events if each] == [("tidy", 5.0)] * 2


def test_a_table_that_cannot_be_tidied_now_is_tidied_later() -> None:
    script = Script(FULL, LAST)
    script.tidying = Unavailable("away")
    script.run(compact_every=1).once()
    assert script.events.count(("tidy", None)) == 2
    hopeless = Script(FULL, LAST)
    hopeless.tidying = Rejected("no such table")
    with pytest.raises(Rejected):
        hopeless.run(compact_every=1).once()
