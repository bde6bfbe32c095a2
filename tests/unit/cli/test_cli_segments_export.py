"""`danube segments export`: what the files hold, read by others."""

import base64
import json
from pathlib import Path
from random import randbytes

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from stored_history import CREATED_MS, StoredHistory, payload_of

from pydanube.cli.main import main
from pydanube.history.segment_file import verify_segment
from pydanube.protocol.dnb1 import FrameDecoder, Message, decode_message

CREATED = CREATED_MS // 1000


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "export"


def export(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["segments", "export", *arguments])


def lines_of(folder: Path) -> list[dict[str, object]]:
    files = sorted(folder.iterdir(), key=lambda file: int(file.name.split("-")[1]))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def frames_of(file: Path) -> list[Message]:
    decoder = FrameDecoder()
    decoder.receive(file.read_bytes())
    found = []
    while (frame := decoder.next_frame()) is not None:
        message = decode_message(frame.body)
        assert message.topic_offset == frame.offset
        found.append(message)
    assert decoder.position == file.stat().st_size
    return found


def test_json_lines_from_a_broker(history: StoredHistory, admin_addr: str, target: Path) -> None:
    history.add(0, 9)
    history.add(10, 29)
    result = export(
        "/default/orders", "--admin-addr", admin_addr, "--format", "jsonl", "--to", str(target), "-o", "json"
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == [
        {
            "file": str(target / f"data-{first}-{CREATED}.jsonl"),
            "first_offset": first,
            "last_offset": last,
            "messages": last - first + 1,
            "size": (target / f"data-{first}-{CREATED}.jsonl").stat().st_size,
        }
        for first, last in ((0, 9), (10, 29))
    ]
    lines = lines_of(target)
    assert [line["offset"] for line in lines] == list(range(30))
    assert lines[3] == {
        "offset": 3,
        "publish_time": CREATED_MS + 3,
        "append_time": CREATED_MS + 4,
        "producer_name": "shop",
        "routing_key": "eu",
        "attributes": {"kind": "order", "n": "3"},
        "schema_id": 3,
        "schema_version": 1,
        "payload": "order 3 für dich",
    }
    assert lines[4] == {
        "offset": 4,
        "publish_time": CREATED_MS + 4,
        "append_time": CREATED_MS + 5,
        "producer_name": "shop",
        "payload_encoding": "base64",
        "payload": base64.b64encode(payload_of(4)).decode(),
    }


def test_dnb1_frames_of_a_range(history: StoredHistory, admin_addr: str, target: Path) -> None:
    history.add(0, 9)
    history.add(10, 19)
    history.add(20, 29)
    result = export(
        *("/default/orders", "--admin-addr", admin_addr, "--format", "dnb1", "--to", str(target)),
        *("--from-offset", "7", "--to-offset", "12"),
    )
    assert result.exit_code == 0, result.output
    assert "6 messages" in result.stdout
    assert sorted(file.name for file in target.iterdir()) == [
        f"data-10-{CREATED}.dnb1",
        f"data-7-{CREATED}.dnb1",
    ]
    messages = [
        *frames_of(target / f"data-7-{CREATED}.dnb1"),
        *frames_of(target / f"data-10-{CREATED}.dnb1"),
    ]
    assert [message.topic_offset for message in messages] == list(range(7, 13))
    assert [message.payload for message in messages] == [payload_of(offset) for offset in range(7, 13)]
    assert {message.topic_name for message in messages} == {"/default/orders"}
    assert list(messages[2].attributes) == [("kind", "order"), ("n", "9")]


def test_whole_segments_as_parquet_are_the_same_bytes(history: StoredHistory, target: Path) -> None:
    file = history.add(0, 9)
    result = export("--dir", str(history.folder), "--format", "parquet", "--to", str(target))
    assert result.exit_code == 0, result.output
    assert (target / file.name).read_bytes() == file.read_bytes()


def test_a_part_of_a_segment_as_parquet_is_a_segment(history: StoredHistory, target: Path) -> None:
    history.add(0, 19)
    history.add(20, 39)
    result = export(
        *("--dir", str(history.folder), "--format", "parquet", "--to", str(target)),
        *("--from-offset", "5", "--to-offset", "13"),
    )
    assert result.exit_code == 0, result.output
    [file] = target.iterdir()
    findings = verify_segment(file)
    assert findings.is_good, findings.problems
    assert findings.descriptor is not None
    assert (findings.descriptor.start_offset, findings.descriptor.end_offset) == (5, 13)
    assert pq.read_table(file).column("payload").to_pylist() == [
        payload_of(offset) for offset in range(5, 14)
    ]


@pytest.mark.parametrize(
    ("range_options", "words"),
    [
        ([], "Offsets 10 to 24 are not exported"),
        (["--from-offset", "12", "--to-offset", "20"], "Offsets 12 to 20 are not exported"),
        (["--to-offset", "9"], ""),
        (["--from-offset", "25"], ""),
    ],
)
def test_what_is_not_sealed_yet_is_told(
    history: StoredHistory, admin_addr: str, target: Path, range_options: list[str], words: str
) -> None:
    history.add(0, 9)
    history.sealed_end, history.next_offset = 10, 25
    result = export(
        *("/default/orders", "--admin-addr", admin_addr, "--format", "jsonl", "--to", str(target)),
        *range_options,
    )
    assert result.exit_code == 0, result.output
    assert words in result.stderr
    assert bool(result.stderr) == bool(words)


def test_a_range_nothing_lies_in_exports_nothing(history: StoredHistory, target: Path) -> None:
    history.add(0, 9)
    result = export(
        *("--dir", str(history.folder), "--format", "jsonl", "--to", str(target), "--from-offset", "10"),
        *("-o", "json"),
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == []
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("form", ["jsonl", "dnb1", "parquet"])
def test_a_damaged_segment_is_not_exported(history: StoredHistory, target: Path, form: str) -> None:
    file = history.add(0, 19)
    data = bytearray(file.read_bytes())
    data[200] ^= 1
    file.write_bytes(data)
    result = export("--dir", str(history.folder), "--format", form, "--to", str(target))
    assert result.exit_code == 1
    assert str(file) in result.stderr
    assert list(target.iterdir()) == []


@pytest.mark.parametrize("form", ["jsonl", "dnb1", "parquet"])
def test_damage_on_the_way_from_a_broker_leaves_no_file(
    history: StoredHistory, admin_addr: str, target: Path, form: str
) -> None:
    payload = randbytes(2000)
    file = history.add(0, 19, payload=payload)
    data = bytearray(file.read_bytes())
    # What does not shrink is stored as it is: only the page's checksum tells that it was changed.
    data[data.index(payload) + 1000] ^= 1
    file.write_bytes(data)
    result = export("/default/orders", "--admin-addr", admin_addr, "--format", form, "--to", str(target))
    assert result.exit_code == 1
    assert "restore it from a copy" in result.stderr
    assert list(target.iterdir()) == []


def test_an_export_with_a_hole_is_no_success(history: StoredHistory, admin_addr: str, target: Path) -> None:
    history.deleted_when_read = {history.add(0, 9).name}
    history.add(10, 19)
    result = export("/default/orders", "--admin-addr", admin_addr, "--format", "jsonl", "--to", str(target))
    assert result.exit_code == 1
    assert "was deleted meanwhile" in result.stderr


@pytest.mark.parametrize("form", ["jsonl", "dnb1", "parquet"])
def test_what_was_exported_is_not_overwritten(history: StoredHistory, target: Path, form: str) -> None:
    history.add(0, 9)
    arguments = ("--dir", str(history.folder), "--format", form, "--to", str(target))
    assert export(*arguments).exit_code == 0
    [file] = target.iterdir()
    before = file.read_bytes()
    result = export(*arguments)
    assert result.exit_code == 1
    assert f"{file} exists: export into an empty folder" in result.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["/a/b", "--to", "x"], "Missing option '--format'"),
        (["/a/b", "--format", "jsonl"], "Missing option '--to'"),
        (["--format", "jsonl", "--to", "x"], "give either a TOPIC or a folder"),
        (
            ["/a/b", "--format", "jsonl", "--to", "x", "--from-offset", "5", "--to-offset", "4"],
            "--to-offset 4 is before --from-offset 5",
        ),
    ],
)
def test_wrong_options_of_an_export_end_with_2(arguments: list[str], words: str) -> None:
    result = export(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
