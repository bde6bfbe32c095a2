"""A short slice of `python -m tests.fault`: the real thing runs for as long as one likes."""

from pathlib import Path

import pytest

from tests.fault.chapter import play

SEED = "20261116"
SECONDS = 20


@pytest.mark.timeout(180)
async def test_nothing_acknowledged_is_lost_by_kill_9(tmp_path: Path) -> None:
    told: list[str] = [f"seed {SEED}"]
    chapter = await play(
        tmp_path / "chapter", SEED, producers=3, seconds=SECONDS, rounds_max=12, report=told.append
    )
    print("\n".join(told), chapter.counts())
    assert chapter.problems == [], f"{told}\n{chapter.broker_log}"
    assert chapter.rounds >= 2
    assert chapter.counts()["ok"] > 100
    assert chapter.counts()["cuts"] > 0
    assert chapter.counts()["sessions shut out"] > 0
