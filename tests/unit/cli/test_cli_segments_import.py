"""`danube import --dnb1`: files of a Danube broker in, a topic behind an admin port out."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import randbytes

import pytest
from click.testing import CliRunner, Result
from stored_history import StoredHistory, store_down

from pydanube.cli import import_history
from pydanube.cli.main import main
from pydanube.protocol.dnb1 import Message, encode_frame, encode_message


def frame(offset: int, payload: bytes | None = None) -> bytes:
    message = Message(
        request_id=offset,
        producer_id=5,
        topic_name="/default/source",
        broker_addr="127.0.0.1:6650",
        topic_offset=offset,
        payload=payload or f"message {offset}".encode(),
        publish_time=1_700_000_000_000 + offset,
        producer_name="shop",
        subscription_name=None,
        attributes=(("kind", "order"),),
        schema_id=None,
        schema_version=None,
        routing_key=None,
    )
    return encode_frame(offset, encode_message(message))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with two segments of a Danube broker."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "data-5-1700000000.dnb1").write_bytes(b"".join(frame(offset) for offset in range(5, 15)))
    (folder / "data-15-1700000001.dnb1").write_bytes(b"".join(frame(offset) for offset in range(15, 20)))
    return folder


def danube_import(folder: Path, *arguments: str, topic: str = "/default/copy") -> Result:
    return CliRunner().invoke(main, ["import", "--dnb1", str(folder), "--topic", topic, *arguments])


def test_messages_keep_their_offsets(history: StoredHistory, admin_addr: str, source: Path) -> None:
    result = danube_import(source, "--admin-addr", admin_addr, "-o", "json", topic="default/copy")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert {name: document[name] for name in ("topic", "source_topic", "start_offset", "next_offset")} == {
        "topic": "/default/copy",
        "source_topic": "/default/source",
        "start_offset": 5,
        "next_offset": 20,
    }
    assert (document["messages"], document["kept"], document["renumbered"], document["files"]) == (
        15,
        15,
        0,
        2,
    )
    [segment] = history.imported
    assert (segment.topic_id, segment.start_offset, segment.end_offset) == (99, 5, 19)
    assert history.abandoned == []


def test_the_report_for_people_says_what_was_left_out(
    history: StoredHistory, admin_addr: str, source: Path
) -> None:
    last = source / "data-15-1700000001.dnb1"
    last.write_bytes(last.read_bytes() + frame(20)[:10])
    result = danube_import(source, "--admin-addr", admin_addr)
    assert result.exit_code == 0, result.output
    assert "Imported /default/copy" in result.stdout
    assert "10 B torn off at the ends of files" in result.stdout
    assert "5 to 19" in result.stdout


def test_a_file_larger_than_a_part_is_sent_whole(
    history: StoredHistory, admin_addr: str, tmp_path: Path
) -> None:
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "wal.log").write_bytes(b"".join(frame(offset, randbytes(700_000)) for offset in range(5)))
    result = danube_import(folder, "--admin-addr", admin_addr)
    assert result.exit_code == 0, result.output
    [segment] = history.imported
    assert segment.size > 3_500_000


def test_a_gap_is_refused_with_the_option_that_helps(
    history: StoredHistory, admin_addr: str, source: Path
) -> None:
    (source / "data-30-1700000002.dnb1").write_bytes(frame(30))
    result = danube_import(source, "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert "offsets 20 to 29 are missing" in result.stderr
    assert "(--renumber)" in result.stderr
    assert history.abandoned == [99]
    again = danube_import(source, "--admin-addr", admin_addr, "--renumber", "-o", "json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["messages"] == 16


def test_messages_out_of_order_are_sorted_when_that_is_allowed(
    history: StoredHistory, admin_addr: str, source: Path
) -> None:
    late = [15, 18, 16, 17, 19]
    (source / "data-15-1700000001.dnb1").write_bytes(b"".join(frame(offset) for offset in late))
    result = danube_import(source, "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert "(--reorder)" in result.stderr
    again = danube_import(source, "--admin-addr", admin_addr, "--reorder", "-o", "json")
    assert again.exit_code == 0, again.output
    document = json.loads(again.stdout)
    assert (document["messages"], document["kept"], document["out_of_order"]) == (15, 15, 2)
    assert [(each.start_offset, each.end_offset) for each in history.imported] == [(5, 19)]


def test_damage_is_refused_with_the_option_that_helps(
    history: StoredHistory, admin_addr: str, source: Path
) -> None:
    file = source / "data-5-1700000000.dnb1"
    data = bytearray(file.read_bytes())
    data[3 * len(frame(5)) + 30] ^= 1
    file.write_bytes(data)
    result = danube_import(source, "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert str(file) in result.stderr
    assert "(--skip-damaged)" in result.stderr
    again = danube_import(source, "--admin-addr", admin_addr, "--skip-damaged", "-o", "json")
    assert again.exit_code == 0, again.output
    assert json.loads(again.stdout)["messages"] == 14


def test_a_topic_that_exists_is_refused_before_anything_is_read(
    history: StoredHistory, admin_addr: str, tmp_path: Path
) -> None:
    result = danube_import(tmp_path, "--admin-addr", admin_addr, topic="/default/orders")
    assert result.exit_code == 1
    assert "topic /default/orders exists" in result.stderr


def test_what_cannot_be_sent_is_abandoned(history: StoredHistory, admin_addr: str, source: Path) -> None:
    history.trouble = store_down()
    result = danube_import(source, "--admin-addr", admin_addr)
    assert result.exit_code == 3
    assert "the store does not answer" in result.stderr
    assert history.abandoned == [99]
    assert history.imported == []


def test_nothing_stays_in_the_folder_for_segments(
    admin_addr: str, history: StoredHistory, source: Path, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    assert danube_import(source, "--admin-addr", admin_addr, "--temp-dir", str(spool)).exit_code == 0
    assert list(spool.iterdir()) == []


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Whoever runs the tests in the background may have told all of them to ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_the_import_and_leaves_nothing(
    history: StoredHistory, admin_addr: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def interrupting(title: str, total: int) -> Iterator[Callable[[int], None]]:
        yield lambda step: signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(import_history, "transfer_bar", interrupting)
    spool = tmp_path / "spool"
    spool.mkdir()
    result = danube_import(source, "--admin-addr", admin_addr, "--temp-dir", str(spool))
    assert result.exit_code == 130
    assert list(spool.iterdir()) == []
    assert history.abandoned == [99]
    assert history.imported == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "/a/b"], "Missing option '--dnb1'"),
        (["--dnb1", "."], "Missing option '--topic'"),
        (["--dnb1", "nowhere", "--topic", "/a/b"], "does not exist"),
        (["--dnb1", ".", "--topic", "a b"], "invalid topic name '/a b'"),
        (["--dnb1", ".", "--topic", "/a/b", "--reorder", "--renumber"], "choose one of them"),
    ],
)
def test_wrong_options_of_an_import_end_with_2(arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(main, ["import", *arguments])
    assert result.exit_code == 2
    assert words in result.stderr
