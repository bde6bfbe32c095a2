"""Streaming queries write each row once, whoever is killed, and whenever; `exactly_once.py` tries more of it."""

from collections import Counter
from pathlib import Path

import pytest
from spark_harness.broker_process import BrokerProcess
from spark_harness.copied_rows import kill_broker_at, live_on, prepare, stored_payloads
from spark_harness.copying import FROM_FILES, FROM_TOPIC
from spark_harness.dying_sink import FatalPoints

SECONDS_MAX = 900
"""Starts of Spark take most of the time, much of it on a busy machine."""


@pytest.mark.timeout(SECONDS_MAX)
def test_spark_and_the_broker_are_killed(broker: BrokerProcess, tmp_path: Path) -> None:
    """Spark in the middle of a batch, whose rows then come to another number of tasks; the broker in the middle of
    a batch; Spark again when a batch was stored and the checkpoint did not know yet.
    """
    rows = prepare(broker, tmp_path)
    points = FatalPoints(tmp_path / "points")
    points.plan_death("from-files-batch0-before1")
    killer = kill_broker_at(broker, points, "from-files-batch2-before1")
    points.plan_death("from-topic-commit1")
    assert live_on(broker, tmp_path, tasks=[2, 3, 1]) >= 3
    killer.join(SECONDS_MAX)
    assert points.unmet() == []
    assert stored_payloads(broker, FROM_FILES) == Counter(rows)
    assert stored_payloads(broker, FROM_TOPIC) == Counter(rows)
