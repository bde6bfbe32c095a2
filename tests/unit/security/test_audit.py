import json
import logging
import stat
from pathlib import Path

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.security.audit import REFUSALS_PER_SECOND_MAX, AuditLog, Outcome
from pydanube.security.settings import AuditSettings


def write(audit: AuditLog, outcome: Outcome = Outcome.DENIED, **changed: str) -> None:
    fields = {
        "principal": "user:alice",
        "action": "native:ack",
        "resource": "topic:/a/b",
        "reason": "no",
        "peer": "",
    }
    audit.record(outcome, **(fields | changed))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_record_is_one_line_whatever_it_holds(tmp_path: Path, clock) -> None:
    audit = AuditLog(AuditSettings(file=str(tmp_path / "deep" / "audit.log")), clock)
    write(audit, resource='topic:/a\n{"outcome":"allowed"}', reason="\x00\u2028\x1b[2J\ud800")
    write(audit, action="x" * 100_000)
    audit.close()
    first, second = lines(tmp_path / "deep" / "audit.log")
    assert first["resource"] == r'topic:/a\n{"outcome":"allowed"}'
    assert first["reason"] == r"\x00\u2028\x1b[2J\ud800"
    assert (first["outcome"], first["time"]) == ("denied", "2027-01-15T08:00:00.000Z")
    assert len(second["action"]) == 1024


def test_the_file_is_for_its_owner_only(tmp_path: Path, clock) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(AuditSettings(file=str(path)), clock)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    audit.close()


def test_files_are_bounded_in_size_and_number(tmp_path: Path, clock) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(AuditSettings(file=str(path), file_mb_max=1, files_max=3), clock)
    for number in range(5000):
        write(audit, peer=str(number), reason="x" * 1000)
    audit.close()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.log", "audit.log.1", "audit.log.2"]
    kept = []
    for name in ("audit.log.2", "audit.log.1", "audit.log"):
        assert (tmp_path / name).stat().st_size <= 1 << 20
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
        kept += [int(record["peer"]) for record in lines(tmp_path / name)]
    assert kept == list(range(kept[0], 5000))


def test_a_file_is_continued(tmp_path: Path, clock) -> None:
    path = tmp_path / "audit.log"
    for _ in range(2):
        audit = AuditLog(AuditSettings(file=str(path)), clock)
        write(audit)
        audit.close()
    assert len(lines(path)) == 2


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, clock) -> None:
    with pytest.raises(Rejected, match=r"auth\.audit\.file"):
        AuditLog(AuditSettings(file=str(tmp_path)), clock)


def test_a_full_disk_sends_records_to_the_log(clock, caplog: pytest.LogCaptureFixture) -> None:
    audit = AuditLog(AuditSettings(file="/dev/full"), clock)
    write(audit)
    audit.close()
    assert audit.failures_total == 1
    assert "native:ack" in caplog.text
    assert "cannot be written" in caplog.text


def test_without_a_file_records_go_to_the_logger(clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pydanube.audit")
    audit = AuditLog(AuditSettings(), clock)
    write(audit)
    write(audit, Outcome.ALLOWED)
    assert [(record.name, record.levelname) for record in caplog.records] == [
        ("pydanube.audit", "WARNING"),
        ("pydanube.audit", "INFO"),
    ]
    assert json.loads(caplog.records[0].getMessage())["principal"] == "user:alice"


def test_a_flood_of_strangers_is_counted_denials_are_all_written(tmp_path: Path, clock) -> None:
    path = tmp_path / "audit.log"
    audit = AuditLog(AuditSettings(file=str(path)), clock)
    for _ in range(1000):
        write(audit, Outcome.REFUSED)
        write(audit, Outcome.DENIED)
    clock.advance(1000)
    write(audit, Outcome.REFUSED)
    audit.close()
    written = lines(path)
    assert sum(record["outcome"] == "denied" for record in written) == 1000
    assert sum(record["outcome"] == "refused" for record in written) == REFUSALS_PER_SECOND_MAX + 1
    assert written[-1]["left_out"] == audit.refusals_dropped_total == 1000 - REFUSALS_PER_SECOND_MAX
