"""Stored history through the command line, as an operator would: seal, look, verify, export, import."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from click.testing import CliRunner, Result

from pydanube.cli.main import main
from pydanube.client import blocking

MESSAGES = 2000


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """One broker for all tests; each uses topics of its own."""
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        yield process


class Operator:
    """Somebody with the `danube` command and the address of a broker."""

    def __init__(self, process: AdminProcess) -> None:
        self.process = process

    def danube(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env={"DANUBE_ADMIN_ADDR": self.process.admin_addr})

    def document(self, *arguments: str) -> Any:
        result = self.danube(*arguments, "--output", "json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def publish(self, topic: str, count: int = MESSAGES) -> list[bytes]:
        """Batches, then as many single messages as the gRPC command sends."""
        payloads = [f"{topic} {number}".encode() for number in range(count - 3)]
        with (
            blocking.connect(f"danube://{self.process.address}") as client,
            client.producer(topic) as producer,
        ):
            producer.send_many(payloads, key="eu", attributes={"kind": "order"})
        url = f"http://{self.process.address}"
        flags = ("--protocol", "grpc", "--reliable", "-n", "rows", "-c", "3", "-i", "100")
        sent = self.danube("produce", "-s", url, "-t", topic, "-m", "row", *flags)
        assert sent.exit_code == 0, sent.output
        return [*payloads, b"row", b"row", b"row"]

    def lines(self, topic: str, folder: Path) -> list[dict[str, Any]]:
        """All sealed messages of a topic, by an export."""
        files = self.document("segments", "export", topic, "--format", "jsonl", "--to", str(folder))
        return [json.loads(line) for each in files for line in Path(each["file"]).read_text().splitlines()]


@pytest.fixture
def operator(broker_process: AdminProcess) -> Operator:
    return Operator(broker_process)


def test_what_was_published_is_sealed_listed_verified_and_exported(
    operator: Operator, tmp_path: Path
) -> None:
    payloads = operator.publish("/default/sealed")
    sealed = operator.document("topics", "seal", "/default/sealed")
    assert sealed["next_offset"] == MESSAGES
    listed = operator.document("segments", "list", "/default/sealed")
    assert listed[-len(sealed["segments"]) :] == sealed["segments"]
    assert (listed[0]["start_offset"], listed[-1]["end_offset"]) == (0, MESSAGES - 1)
    verified = operator.document("segments", "verify", "/default/sealed")
    assert (verified["messages"], verified["damages"]) == (MESSAGES, [])

    lines = operator.lines("/default/sealed", tmp_path / "export")
    assert [line["offset"] for line in lines] == list(range(MESSAGES))
    assert [line["payload"].encode() for line in lines] == payloads
    assert lines[0]["attributes"] == {"kind": "order"}
    assert lines[0]["routing_key"] == "eu"
    assert lines[-1]["producer_name"] == "rows"


def test_sealing_again_makes_nothing_new(operator: Operator) -> None:
    operator.publish("/default/again", 10)
    assert operator.document("topics", "seal", "default/again")["segments"] != []
    assert operator.document("topics", "seal", "default/again")["segments"] == []


def test_describing_tells_how_far_sealing_has_come(operator: Operator) -> None:
    operator.publish("/default/described", 10)
    before = operator.document("topics", "describe", "/default/described")
    assert (before["next_offset"], before["sealed_end"], before["fsync"]) == (10, 0, "always")
    operator.document("topics", "seal", "/default/described")
    after = operator.document("topics", "describe", "/default/described")
    assert (after["sealed_end"], after["waiting_bytes"], after["mode"]) == (10, 0, "local")
    assert after["segment_bytes"] > 0


def test_a_flipped_bit_in_the_store_is_found(operator: Operator) -> None:
    operator.publish("/default/damaged", 100)
    [segment] = operator.document("topics", "seal", "/default/damaged")["segments"]
    file = Path(segment["place"])
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)
    result = operator.danube("segments", "verify", "/default/damaged")
    assert result.exit_code == 1
    assert segment["place"] in result.stderr
    by_folder = operator.danube("segments", "verify", "--dir", str(file.parent))
    assert by_folder.exit_code == 1
    assert str(file) in by_folder.stderr


def test_an_export_for_danube_comes_back_as_a_topic(operator: Operator, tmp_path: Path) -> None:
    payloads = operator.publish("/default/origin")
    operator.document("topics", "seal", "/default/origin")
    frames = tmp_path / "frames"
    operator.document("segments", "export", "/default/origin", "--format", "dnb1", "--to", str(frames))
    report = operator.document("import", "--dnb1", str(frames), "--topic", "/default/copy")
    assert (report["messages"], report["kept"]) == (MESSAGES, MESSAGES)
    assert (report["start_offset"], report["next_offset"]) == (0, MESSAGES)

    assert operator.document("segments", "verify", "/default/copy")["damages"] == []
    untold = {"append_time"}
    for copy, original in zip(
        operator.lines("/default/copy", tmp_path / "copy"),
        operator.lines("/default/origin", tmp_path / "origin"),
        strict=True,
    ):
        assert {k: v for k, v in copy.items() if k not in untold} == {
            k: v for k, v in original.items() if k not in untold
        }
    with blocking.connect(f"danube://{operator.process.address}") as client:
        with client.reader("/default/copy", start="earliest", end="latest") as reader:
            assert [message.payload for message in reader] == payloads
        with client.producer("/default/copy") as producer:
            assert producer.send(b"next").offset == MESSAGES


def test_an_import_that_begins_in_the_middle_keeps_its_offsets(operator: Operator, tmp_path: Path) -> None:
    operator.publish("/default/long", 100)
    operator.document("topics", "seal", "/default/long")
    frames = tmp_path / "frames"
    operator.document(
        *("segments", "export", "/default/long", "--format", "dnb1", "--to", str(frames)),
        *("--from-offset", "40", "--to-offset", "79"),
    )
    report = operator.document("import", "--dnb1", str(frames), "--topic", "/default/middle")
    assert (report["start_offset"], report["next_offset"]) == (40, 80)
    facts = operator.document("topics", "describe", "/default/middle")
    assert (facts["start_offset"], facts["next_offset"]) == (40, 80)


def test_a_topic_that_exists_is_not_imported_over(operator: Operator, tmp_path: Path) -> None:
    operator.publish("/default/taken", 10)
    operator.document("topics", "seal", "/default/taken")
    operator.document("segments", "export", "/default/taken", "--format", "dnb1", "--to", str(tmp_path))
    result = operator.danube("import", "--dnb1", str(tmp_path), "--topic", "/default/taken")
    assert result.exit_code == 1
    assert "/default/taken" in result.stderr


@pytest.mark.parametrize("command", [("topics", "seal"), ("segments", "list")])
def test_a_topic_that_stores_nothing_is_refused(operator: Operator, command: tuple[str, str]) -> None:
    url = f"http://{operator.process.address}"
    sent = operator.danube("produce", "-s", url, "-t", "/default/live", "-m", "x", "-c", "1")
    assert sent.exit_code == 0, sent.output
    result = operator.danube(*command, "/default/live")
    assert result.exit_code == 1
    assert "is non-reliable" in result.stderr


def test_the_client_port_is_not_the_admin_port(operator: Operator) -> None:
    result = operator.danube("topics", "seal", "/default/any", "--admin-addr", operator.process.address)
    assert result.exit_code == 1
    assert "is that the admin port (default 50051)" in result.stderr
