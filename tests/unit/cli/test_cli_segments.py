"""`danube topics` and `danube segments list|verify` against an admin port, and without one."""

import json
import os
import shutil
import socket
from pathlib import Path
from random import randbytes

import pytest
import yaml
from click.testing import CliRunner, Result
from msgspec.structs import replace
from stored_history import StoredHistory, store_down, write_segment

from pydanube.cli.isolation import Isolation
from pydanube.cli.main import main
from pydanube.kernel.errors import Corrupt
from pydanube.kernel.names import TopicName


def danube(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


# topics


def test_sealing_shows_the_new_segments(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    history.unsealed = 5
    result = danube("topics", "seal", "/default/orders", "--admin-addr", admin_addr)
    assert result.exit_code == 0, result.output
    assert history.descriptors[1].segment_id in result.stdout
    assert history.descriptors[0].segment_id not in result.stdout
    assert "/default/orders is sealed up to offset 15" in result.stderr


def test_sealing_as_a_document(history: StoredHistory, admin_addr: str) -> None:
    history.unsealed = 5
    result = danube("topics", "seal", "default/orders", "--admin-addr", admin_addr, "--output", "json")
    document = json.loads(result.stdout)
    assert (document["next_offset"], len(document["segments"])) == (5, 1)
    again = danube("topics", "seal", "default/orders", "--admin-addr", admin_addr, "--output", "json")
    assert json.loads(again.stdout) == document | {"segments": []}


def test_describing_shows_every_fact_of_the_storage(admin_addr: str) -> None:
    arguments = ("topics", "describe", "/default/orders", "--admin-addr", admin_addr)
    shown = danube(*arguments).stdout
    for text in (
        "object_store",
        "always",
        "12,345",
        "12,000",
        "2 of 3.0 MiB",
        "4.0 KiB, the oldest for 12.5 s",
    ):
        assert text in shown
    # What a store says is shown as it is, not taken for a colour.
    assert "[red]the store denied the upload" in shown
    document = yaml.safe_load(danube(*arguments, "-o", "yaml").stdout)
    assert document["topic"] == "/default/orders"
    assert (document["failures"], document["lag_seconds"], document["fsync"]) == (3, 12.5, "always")


def test_a_broker_that_speaks_tls_is_reached_with_its_certificate(tls_admin: tuple[str, Path]) -> None:
    address, ca = tls_admin
    arguments = ("topics", "describe", "/default/orders", "--admin-addr", address)
    shown = danube(*arguments, "--ca", str(ca))
    assert shown.exit_code == 0, shown.output
    untrusted = danube(*arguments)
    assert untrusted.exit_code == 3
    assert "no broker answers on 127.0.0.1" in untrusted.stderr


# segments list


def test_segments_are_listed_with_their_places(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    history.add(10, 1234)
    shown = danube("segments", "list", "/default/orders", "--admin-addr", admin_addr)
    assert shown.exit_code == 0, shown.output
    for descriptor in history.descriptors:
        assert f"store://{descriptor.segment_id}" in shown.stdout
        assert descriptor.checksum in shown.stdout
    assert "1,225" in shown.stdout
    assert "2023-11-14 22:13:20" in shown.stdout


def test_segments_as_a_document_have_every_field(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    history.add(10, 19)
    arguments = ("segments", "list", "/default/orders", "--from-offset", "10", "-o", "json")
    [document] = json.loads(danube(*arguments, env={"DANUBE_ADMIN_ADDR": admin_addr}).stdout)
    expected = history.descriptors[1]
    fields = {name: getattr(expected, name) for name in expected.__struct_fields__}
    assert document == fields | {"messages": 10, "place": f"store://{expected.segment_id}"}


def test_a_list_of_many_pages_is_whole(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    one = history.descriptors[0]
    history.descriptors = [
        replace(one, start_offset=start, end_offset=start + 9) for start in range(0, 25_010, 10)
    ]
    found = json.loads(
        danube("segments", "list", "/default/orders", "--admin-addr", admin_addr, "-o", "json").stdout
    )
    assert [each["start_offset"] for each in found] == list(range(0, 25_010, 10))


# segments verify


def test_good_history_verifies(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    history.add(10, 29)
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr, "-o", "json")
    assert result.exit_code == 0, result.output
    size = sum(each.size for each in history.descriptors)
    assert json.loads(result.stdout) == {
        "segments": 2,
        "messages": 30,
        "size": size,
        "deleted_meanwhile": 0,
        "damages": [],
    }


def test_a_large_segment_comes_in_parts_and_verifies(history: StoredHistory, admin_addr: str) -> None:
    file = history.add(0, 5, payload=randbytes(1 << 20))
    assert file.stat().st_size > 5 << 20
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr, "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["messages"] == 6


def test_a_flipped_bit_is_found_named_and_ends_with_1(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    bad = history.add(10, 19)
    history.add(20, 29)
    flip(bad, 100)
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert f"store://{bad.name}" in result.stderr
    assert history.descriptors[0].segment_id not in result.stderr
    assert "checksum" in result.stderr


def footer_bytes(file: Path) -> range:
    """Where the footer of a Parquet file lies: its length is written behind it."""
    end = file.stat().st_size - 8
    return range(end - int.from_bytes(file.read_bytes()[end : end + 4], "little"), end)


def test_damage_anywhere_in_a_footer_is_found_and_survived(history: StoredHistory, admin_addr: str) -> None:
    files = [history.add(start, start + 3) for start in range(0, 24, 4)]
    for number, file in enumerate(files):
        footer = footer_bytes(file)
        flip(file, footer.start + number * len(footer) // len(files))
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr, "-o", "json")
    assert result.exit_code == 1, result.output
    places = {each["place"] for each in json.loads(result.stdout)["damages"]}
    assert places == {f"store://{file.name}" for file in files}


def test_a_file_that_is_whole_but_another_one_is_found(
    history: StoredHistory, admin_addr: str, tmp_path: Path
) -> None:
    bad = history.add(0, 9)
    other = write_segment(tmp_path, 0, 9, topic=TopicName("default", "others"), topic_id=8)
    assert other.stat().st_size == bad.stat().st_size
    shutil.copy(other, bad)
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert f"store://{bad.name}: topic_id is 8, the broker remembers 7" in result.stderr


def test_a_missing_and_a_short_file_are_found_in_one_run(history: StoredHistory, admin_addr: str) -> None:
    gone = history.add(0, 9)
    short = history.add(10, 19)
    gone.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr, "-o", "json")
    assert result.exit_code == 1
    damages = json.loads(result.stdout)["damages"]
    assert [each["place"] for each in damages] == [f"store://{gone.name}", f"store://{short.name}"]
    assert "is missing: restore it" in damages[0]["what"]
    assert "ends at byte" in damages[1]["what"]


def test_a_gap_between_segments_is_found(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    behind = history.add(12, 19)
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert f"store://{behind.name}: offsets 10 to 11 are missing before it" in result.stderr


def test_what_retention_deletes_meanwhile_is_no_damage(history: StoredHistory, admin_addr: str) -> None:
    history.deleted_when_read = {history.add(0, 9).name, history.add(10, 19).name}
    history.add(20, 29)
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr, "-o", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert (document["segments"], document["messages"], document["deleted_meanwhile"]) == (1, 10, 2)


def test_a_store_that_does_not_answer_is_no_damage(history: StoredHistory, admin_addr: str) -> None:
    history.add(0, 9)
    history.trouble = store_down()
    result = danube("segments", "verify", "/default/orders", "--admin-addr", admin_addr)
    assert result.exit_code == 3
    assert "the store does not answer" in result.stderr


def test_a_folder_verifies_without_a_broker(history: StoredHistory) -> None:
    history.add(0, 9)
    history.add(10, 19)
    result = danube("segments", "verify", "--dir", str(history.folder), "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["messages"] == 20


def test_damage_in_a_folder_names_every_file_and_gap(history: StoredHistory) -> None:
    history.add(0, 9)
    behind_gap = history.add(12, 19)
    flipped = history.add(20, 29)
    behind_damage = history.add(30, 39)
    other = write_segment(history.folder, 40, 41, topic=TopicName("default", "other"), topic_id=8)
    foreign = history.folder / "foreign.parquet"
    foreign.write_bytes(b"PAR1 nothing PAR1")
    flip(flipped, 50)
    result = danube("segments", "verify", "--dir", str(history.folder), "-o", "json")
    assert result.exit_code == 1
    damages = {each["place"]: each["what"] for each in json.loads(result.stdout)["damages"]}
    assert list(damages) == [str(file) for file in (behind_gap, flipped, other, foreign)]
    assert str(behind_damage) not in damages
    assert damages[str(behind_gap)].startswith("offsets 10 to 11 are missing before it")
    assert damages[str(other)].startswith("it belongs to another topic")


# What goes wrong before anything is found


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize(
    "command", [("topics", "seal"), ("topics", "describe"), ("segments", "list"), ("segments", "verify")]
)
def test_without_a_broker_it_is_said_how_to_start_one(command: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{closed_port()}"
    result = danube(*command, "/default/orders", "--admin-addr", address)
    assert result.exit_code == 3
    assert f"no broker answers on {address}: start one by `danube broker`" in result.stderr


@pytest.mark.parametrize(
    "command", [("topics", "seal"), ("topics", "describe"), ("segments", "list"), ("segments", "verify")]
)
def test_an_unknown_topic_is_refused_with_1(admin_addr: str, command: tuple[str, ...]) -> None:
    result = danube(*command, "/default/nobody", "--admin-addr", admin_addr)
    assert result.exit_code == 1
    assert "topic /default/nobody not found on this broker (code 200)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics", "seal"], "Missing argument 'TOPIC'"),
        (["topics", "seal", "/a/b", "--admin-addr", "a/b"], "'a/b' is no address: expected host:port"),
        (["segments", "verify"], "give either a TOPIC or a folder"),
        (["segments", "verify", "/a/b", "--dir", "."], "give either a TOPIC or a folder"),
        (["segments", "verify", "--dir", "nowhere"], "does not exist"),
        (["segments", "list", "/a/b", "-o", "xml"], "'xml' is not one of"),
    ],
)
def test_wrong_options_end_with_2(arguments: list[str], words: str) -> None:
    result = danube(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_folder_without_segments_is_refused(tmp_path: Path) -> None:
    result = danube("segments", "verify", "--dir", str(tmp_path))
    assert result.exit_code == 1
    assert "holds no *.parquet file" in result.stderr


async def test_a_file_that_kills_its_reader_is_damaged_and_the_next_one_is_read() -> None:
    async with Isolation() as isolation:
        with pytest.raises(Corrupt, match="cannot be read as Parquet: restore it"):
            await isolation.run(os.abort)
        assert await isolation.run(abs, -5) == 5
