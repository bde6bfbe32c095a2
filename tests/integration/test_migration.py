"""docs/migration.md, followed step by step: from the files of a Danube broker to clients that go on here."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from broker_harness.wire_client import WireClient
from click.testing import CliRunner, Result

from pydanube.cli.main import main
from pydanube.protocol.dnb1 import Message, encode_frame, encode_message

TOPIC = "/default/orders"
FIRST, END = 100, 160


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[AdminProcess]:
    folder = tmp_path / "broker"
    folder.mkdir()
    with admin_process(folder) as process:
        yield process


def frames(start: int, end: int) -> bytes:
    messages = [
        Message(
            *(
                offset,
                7,
                TOPIC,
                "10.0.0.1:6650",
                offset,
                f"order {offset}".encode(),
                1_700_000_000_000 + offset,
                "shop",
            ),
            *("", (("kind", "order"),), 3, 1, f"customer-{offset % 5}"),
        )
        for offset in range(start, end)
    ]
    return b"".join([encode_frame(message.topic_offset, encode_message(message)) for message in messages])


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A copy of what a broker in mode shared_fs left: segments, log files that overlap them, a torn end."""
    folder = tmp_path / "copied"
    (folder / "segments").mkdir(parents=True)
    (folder / "segments" / "data-100-1700000000.dnb1").write_bytes(frames(FIRST, 130))
    (folder / "wal.3.log").write_bytes(frames(120, 140))
    (folder / "wal.4.log").write_bytes(frames(140, END) + frames(END, END + 1)[:-5])
    return folder


def danube(process: AdminProcess, *arguments: str) -> Result:
    result = CliRunner().invoke(main, arguments, env={"DANUBE_ADMIN_ADDR": process.admin_addr})
    assert result.exit_code == 0, result.output
    return result


def document(process: AdminProcess, *arguments: str) -> Any:
    return json.loads(danube(process, *arguments, "--output", "json").stdout)


def consume_once(process: AdminProcess, start: int) -> None:
    """Step 6: a subscription that goes on behind `start`."""
    url = f"danube://{process.address}"
    options = ("-m", "billing", "--sub-type", "exclusive", "--start", str(start), "--count", "1")
    assert f"order {start}" in danube(process, "consume", "-s", url, "-t", TOPIC, *options).output


async def go_on(process: AdminProcess, acknowledged: int) -> None:
    """Step 7: clients as they are, over gRPC."""
    client = WireClient(process.address)
    try:
        stream = await client.consume(TOPIC, "billing", "consumer_pubsub")
        for offset in range(acknowledged + 1, END):
            message = await stream.next()
            assert (message.msg_id.topic_offset, message.payload) == (offset, f"order {offset}".encode())
            assert (message.routing_key, dict(message.attributes)) == (
                f"customer-{offset % 5}",
                {"kind": "order"},
            )
            assert (message.schema_id, message.schema_version) == (3, 1)
            await stream.ack(message)
        await (await client.create_producer(TOPIC)).send("new")
        assert (await stream.next()).msg_id.topic_offset == END
    finally:
        await client.close()


def test_history_comes_along_and_clients_go_on(
    broker_process: AdminProcess, copied: Path, tmp_path: Path
) -> None:
    report = document(broker_process, "import", "--dnb1", str(copied), "--topic", TOPIC)
    assert (report["start_offset"], report["next_offset"]) == (FIRST, END)
    assert (report["kept"], report["renumbered"], report["duplicates"]) == (END - FIRST, 0, 10)
    assert report["torn_bytes"] == len(frames(END, END + 1)) - 5

    assert document(broker_process, "segments", "verify", TOPIC)["damages"] == []
    back = tmp_path / "back"
    document(broker_process, "segments", "export", TOPIC, "--format", "dnb1", "--to", str(back))
    assert b"".join([file.read_bytes() for file in sorted(back.iterdir())]) == frames(FIRST, END)

    consume_once(broker_process, 119)
    asyncio.run(go_on(broker_process, 119))
