"""`danube bench` against a broker process, as a user would run it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import trustme
import yaml
from broker_harness.tokens import TRUSTED, root_token

DANUBE = [sys.executable, "-c", "from pydanube.cli.main import main; main()"]
SECONDS_MAX = 60


@contextmanager
def running_broker(folder: Path, **settings: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A broker of its own: its address, and its process."""
    # Journal files are written in full when they are made: small ones make a broker start at once.
    settings["storage"] = {"wal": {"rotation": {"max_bytes": 4 << 20}}}
    (folder / "danube.yml").write_text(yaml.safe_dump(settings))
    process = subprocess.Popen(
        [
            *DANUBE,
            *("broker", "--config-file", str(folder / "danube.yml"), "--data-dir", str(folder / "data")),
            *("--broker-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--prom-exporter", "off"),
        ],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    assert process.stderr is not None
    with process, process.stderr:
        try:
            ready = next((line for line in process.stderr if "broker ready" in line), None)
            assert ready is not None, "the broker did not start"
            yield json.loads(ready)["client"], process
        finally:
            process.kill()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("broker")) as (address, _):
        yield address


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DANUBE, "bench", *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def bench_json(*arguments: str) -> dict[str, object]:
    done = bench(*arguments, "--output", "json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    fields = json.loads(done.stdout)
    assert isinstance(fields, dict)
    assert fields["errors"] == 0
    return fields


PROTOCOLS = ["native", "grpc"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_publish_counts_every_receipt(broker: str, protocol: str) -> None:
    fields = bench_json(
        *("publish", "--broker", broker, "--protocol", protocol, "--size", "100", "--count", "301"),
        *("--producers", "3", "--topics", "2", "--processes", "2", "--connections", "2"),
    )
    assert fields["messages"] == 301
    assert fields["bytes"] == 30_100
    for name in ("messages_per_second", "bytes_per_second", "broker_cpu_us_per_message"):
        assert fields[name] > 0  # type: ignore[operator]
    assert 0 < fields["p50_us"] <= fields["p99_us"] <= fields["max_us"]  # type: ignore[operator]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consume_reads_all_in_every_subscription(broker: str, protocol: str) -> None:
    fields = bench_json(
        *("consume", "--broker", broker, "--protocol", protocol, "--fill", protocol, "--count", "200"),
        *("--topics", "2", "--subscriptions", "2", "--processes", "2"),
    )
    assert fields["messages"] == 400
    assert (fields["lost"], fields["duplicated"], fields["out_of_order"]) == (0, 0, 0)


@pytest.mark.parametrize("read", ["batches", "messages", "rows"])
def test_every_way_of_reading_sees_the_same(broker: str, read: str) -> None:
    fields = bench_json(
        *("consume", "--broker", broker, "--read", read, "--count", "300", "--batch", "64", "--size", "20"),
        *("--consumers", "2", "--compression", "zstd"),
    )
    assert fields["messages"] == 300
    assert fields["bytes"] == 6000


def test_a_topic_that_is_filled_already_is_read_as_it_is(broker: str) -> None:
    publish = ("publish", "--broker", broker, "--topic", "/default/filled", "--warmup", "0", "--size", "5")
    bench_json(*publish, "--count", "70", "--partitions", "3", "--batch", "7", "--send", "many")
    fields = bench_json("consume", "--broker", broker, "--topic", "/default/filled", "--count", "70")
    assert (fields["messages"], fields["bytes"]) == (70, 350)


def test_the_first_messages_of_a_longer_topic_can_be_read(broker: str) -> None:
    bench_json("publish", "--broker", broker, "--topic", "/default/long", "--warmup", "0", "--count", "70")
    fields = bench_json("consume", "--broker", broker, "--topic", "/default/long", "--count", "50")
    assert fields["errors"] == 0


def test_messages_that_never_come_are_lost(broker: str) -> None:
    publish = ("publish", "--broker", broker, "--topic", "/default/short", "--warmup", "0", "--count", "40")
    assert bench_json(*publish, "--partitions", "2")["messages"] == 40
    short = bench(
        *("consume", "--broker", broker, "--topic", "/default/short", "--count", "50", "--timeout", "1"),
        *("--output", "json"),
    )
    assert short.returncode == 1
    fields = json.loads(short.stdout)
    assert (fields["messages"], fields["lost"], fields["errors"]) == (40, 10, 10)
    assert "10 lost" in short.stderr


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["--reliable", "--non-reliable"])
def test_latency_sees_every_message_arrive(broker: str, protocol: str, kind: str) -> None:
    fields = bench_json(
        *("latency", "--broker", broker, "--protocol", protocol, kind, "--count", "60", "--rate", "300"),
        *("--warmup", "5", "--producers", "2", "--subscriptions", "2"),
    )
    assert fields["messages"] == 120
    assert fields["p50_us"] > 0  # type: ignore[operator]
    assert fields["publish_p50_us"] > 0  # type: ignore[operator]


def test_the_table_the_yaml_and_the_picture(broker: str, tmp_path: Path) -> None:
    publish = ("publish", "--broker", broker, "--protocol", "grpc", "--count", "50")
    table = bench(*publish, "--plot", str(tmp_path / "run.svg"))
    assert table.returncode == 0, table.stderr
    assert "messages/s" in table.stdout
    assert "p99" in table.stdout
    assert "broker CPU" in table.stdout
    assert (tmp_path / "run.svg").stat().st_size > 0
    assert yaml.safe_load(bench(*publish, "--output", "yaml").stdout)["messages"] == 50


class AtTheTerminal:
    """A run that is to take long, seen by its progress; `wait_for_messages` returns when it is under way."""

    def __init__(self, *arguments: str) -> None:
        self._terminal, stderr = pty.openpty()
        self.process = subprocess.Popen(
            [*DANUBE, "bench", *arguments, "--count", "1000000", "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
        os.close(stderr)
        self._shown = b""

    def wait_for_messages(self) -> None:
        while not re.search(rb"[1-9]\d*/1000000", self._shown):
            self._shown += os.read(self._terminal, 4096)

    def result(self) -> tuple[int, dict[str, object]]:
        # A terminal nobody reads would stop who writes to it.
        reading = threading.Thread(target=self._read_to_the_end)
        reading.start()
        out, _ = self.process.communicate(timeout=SECONDS_MAX)
        reading.join()
        return self.process.returncode, json.loads(out)

    def _read_to_the_end(self) -> None:
        with suppress(OSError):
            while read := os.read(self._terminal, 4096):
                self._shown += read
        os.close(self._terminal)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_ctrl_c_tells_what_was_measured_so_far(broker: str, protocol: str) -> None:
    running = AtTheTerminal("publish", "--broker", broker, "--protocol", protocol, "--rate", "200")
    running.wait_for_messages()
    running.process.send_signal(signal.SIGINT)
    status, fields = running.result()
    assert status == 130
    assert (fields["ending"], fields["errors"]) == ("interrupted", 0)
    assert 0 < fields["messages"] < 1_000_000  # type: ignore[operator]


def test_a_broker_that_dies_is_an_error(tmp_path: Path) -> None:
    with running_broker(tmp_path) as (address, process):
        running = AtTheTerminal("publish", "--broker", address, "--rate", "1000", "--timeout", "1")
        running.wait_for_messages()
        process.kill()
        status, fields = running.result()
    assert status == 1
    assert fields["messages"] > 0  # type: ignore[operator]
    assert fields["messages"] + fields["errors"] == 1_000_000  # type: ignore[operator]


def test_an_encrypted_port_is_measured_like_any_other(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    certificate.private_key_pem.write_to_path(tmp_path / "server.key")
    certificate.cert_chain_pems[0].write_to_path(tmp_path / "server.crt")
    authority.cert_pem.write_to_path(tmp_path / "ca.crt")
    tls = {"cert_file": f"{tmp_path}/server.crt", "key_file": f"{tmp_path}/server.key"}
    with running_broker(tmp_path, auth={"mode": "tls", "tls": tls, **TRUSTED}) as (address, _):
        for protocol in PROTOCOLS:
            fields = bench_json(
                *("publish", "--broker", f"danubes://{address}", "--ca", str(tmp_path / "ca.crt")),
                *("--protocol", protocol, "--count", "20", "--token", root_token()),
            )
            assert fields["messages"] == 20


@pytest.mark.parametrize(("protocol", "words"), [("native", "cannot be reached"), ("grpc", "refused")])
def test_no_broker_is_said_so(protocol: str, words: str) -> None:
    done = bench("publish", "--broker", "127.0.0.1:1", "--protocol", protocol, "--count", "1")
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
