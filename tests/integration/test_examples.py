"""Every example does what it says, as a program of its own, against a real broker."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from broker_harness.running_broker import RunningBroker

FOLDER = Path(__file__).parents[2] / "examples"

SHOWN = {
    "publish.py": ["stored at offset 0 of /default/example-publish", "3 messages from offset 10001 on"],
    "consume.py": ["offset 0 done at try 1: good", "offset 1 failed", "offset 1 done at try 2: bad"],
    "batches.py": [
        "1000 rows from /default/example-batches",
        "{'routing_key': 'customer-2', 'payload_count': 333}",
    ],
    "send_table.py": ["10000 messages in 1 batches"],
    "delayed.py": ["now, or never after a minute\nin a second\nin two seconds"],
    "idempotent_restart.py": [
        "0 lines are there already\n300 lines are there already",
        "1000 lines stored, each exactly once: True",
    ],
    "replay.py": ["'990', '991'", "1000 messages in the last hour"],
    "seek.py": ["offset 97 again\noffset 98 again\noffset 99 again"],
    "key_shared.py": ["1000 messages; 0 keys were seen by both workers"],
    "partitions.py": ["/default/example-partitions-part-3: "],
    "mixed.py": ["offset 1 = 1: of two = of two", "offset 2 = 2: a single message = a single message"],
    "blocking_client.py": ["stored at offset 0", "1001 messages done"],
}


def test_every_example_is_run_here() -> None:
    assert {path.name for path in FOLDER.glob("*.py")} == set(SHOWN)


@pytest.mark.parametrize("name", SHOWN)
async def test_the_example_runs(broker: RunningBroker, name: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        FOLDER / name,
        f"danube://{broker.address}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    for text in SHOWN[name]:
        assert text in output.decode()
