"""The command line against a broker process, as a user would run them."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

DANUBE = [sys.executable, "-c", "from pydanube.cli.main import main; main()"]
SECONDS_MAX = 30


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class BrokerProcess:
    """`danube broker` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.client_port = free_port()
        self.metrics_port = free_port()
        self.url = f"http://127.0.0.1:{self.client_port}"
        self.data_dir = folder / "data"
        self._file = folder / "danube.yml"
        # Journal files are written in full when they are made: small ones make a broker start at once.
        self._file.write_text("storage: {wal: {rotation: {max_bytes: 1048576}}}")
        self.log: list[str] = []
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                *DANUBE,
                *("broker", "--mode", "standalone", "--config-file", str(self._file)),
                *(
                    "--data-dir",
                    str(self.data_dir),
                    "--broker-addr",
                    f"127.0.0.1:{self.client_port}",
                    "--admin-addr",
                    "127.0.0.1:0",
                ),
                *("--admin-addr", "127.0.0.1:0", "--prom-exporter", f"127.0.0.1:{self.metrics_port}"),
            ],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if "broker ready" in line:
                break
        else:
            raise AssertionError("the broker did not start:\n" + "".join(self.log))
        self._reader = threading.Thread(target=self.log.extend, args=(self.process.stderr,))
        self._reader.start()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        status = self.process.wait(SECONDS_MAX)
        self._reader.join()
        assert self.process.stderr is not None
        self.process.stderr.close()
        return status


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests that leave it alone; each uses topics of its own."""
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop(signal.SIGKILL)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker the test may stop."""
    broker = BrokerProcess(tmp_path)
    yield broker
    broker.stop(signal.SIGKILL)


def danube(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*DANUBE, *arguments], input=stdin, capture_output=True, timeout=SECONDS_MAX, check=False
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


class Consuming:
    """`danube consume` in the background, subscribed before the constructor returns."""

    def __init__(self, url: str, *arguments: str, subscription: str = "s") -> None:
        self.process = subprocess.Popen(
            [*DANUBE, "consume", "-s", url, "-m", subscription, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert "subscribed to" in self.process.stderr.readline()

    def result(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=SECONDS_MAX)
        return self.process.returncode, out, err


@pytest.mark.parametrize(
    ("sender", "receiver"), [("native", "native"), ("grpc", "grpc"), ("native", "grpc"), ("grpc", "native")]
)
def test_what_is_produced_is_consumed(broker_process: BrokerProcess, sender: str, receiver: str) -> None:
    url, topic = broker_process.url, f"/default/a-{sender}-{receiver}"
    produce = ("produce", "-s", url, "-t", topic, "--reliable", "--protocol", sender)
    created = danube(*produce, "-m", "first")
    assert created.returncode == 0, created.stderr
    consuming = Consuming(url, "-t", topic, "--count", "3", "--timeout", "20", "--protocol", receiver)
    sent = danube(*produce, "-m", "hello", "-c", "3", "-i", "100", "-a", "kind:greeting,link:http://x")
    name = "offset" if sender == "native" else "id"
    assert sent.stdout == (
        f"Producer test_producer created on {topic}\n"
        + "".join(f"{n}/3 sent, {name} {n}\n" for n in (1, 2, 3))
        + "Success: 3\n"
    )

    status, out, _ = consuming.result()
    assert status == 0
    assert out.splitlines() == [
        line
        for n in (1, 2, 3)
        for line in (
            f'Received reliable message: "hello", Topic offset: {n}, Size: 5 bytes, Total received: {n}',
            "Attributes: kind=greeting, link=http://x",
        )
    ]


@pytest.mark.parametrize("protocol", ["native", "grpc"])
def test_json_in_and_out_carries_everything(broker_process: BrokerProcess, protocol: str) -> None:
    url, topic = broker_process.url, f"/default/j-{protocol}"
    danube("produce", "-s", url, "-t", topic, "-m", "first", "--reliable")
    consuming = Consuming(
        *(url, "-t", topic, "-c", "3", "--timeout", "20", "-o", "json", "--protocol", protocol)
    )
    stdin = "eins\nzwei ü\r\n".encode() + b"\xff\xfe"
    sent = danube(
        *("produce", "-s", url, "-t", topic, "--reliable", "-f", "-", "-k", "k1", "-o", "json"),
        *("--protocol", protocol),
        stdin=stdin,
    )
    assert [json.loads(line) for line in sent.stdout.splitlines()][-1] == {"success": 3, "errors": 0}
    status, out, _ = consuming.result()
    assert status == 0
    messages = [json.loads(line) for line in out.splitlines()]
    assert [m.get("payload") or m.get("payload_base64") for m in messages] == ["eins", "zwei ü", "//4="]
    assert [m["offset"] for m in messages] == [1, 2, 3]
    assert {(m["topic"], m["producer"], m["routing_key"]) for m in messages} == {
        (topic, "test_producer", "k1")
    }


def test_a_file_is_sent_as_it_is(broker_process: BrokerProcess, tmp_path: Path) -> None:
    url = broker_process.url
    file = tmp_path / "payload.txt"
    file.write_bytes(b"line one\nline two\n" + b"x" * 2000)
    danube("produce", "-s", url, "-t", "/default/f", "-m", "first", "--reliable")
    consuming = Consuming(url, "-t", "/default/f", "-c", "1", "--timeout", "20")
    assert danube("produce", "-s", url, "-t", "/default/f", "--reliable", "-f", str(file)).returncode == 0
    status, out, _ = consuming.result()
    assert status == 0
    assert "line one\nline two\nxxx" in out
    assert "…" in out
    assert "Size: 2018 bytes" in out


def test_partitions_are_filled_and_read_together(broker_process: BrokerProcess) -> None:
    url = broker_process.url
    produce = ["produce", "-s", url, "-t", "/default/p", "--reliable", "-p", "3", "-i", "100"]
    assert danube(*produce, "-m", "first", "-c", "1").returncode == 0
    consuming = Consuming(url, "-t", "/default/p", "-c", "6", "--timeout", "20", "-o", "json")
    assert "Success: 6" in danube(*produce, "-m", "x", "-c", "6").stdout
    status, out, _ = consuming.result()
    assert status == 0
    topics = [json.loads(line)["topic"] for line in out.splitlines()]
    assert {topic: topics.count(topic) for topic in topics} == {f"/default/p-part-{n}": 2 for n in range(3)}


@pytest.mark.parametrize("protocol", ["native", "grpc"])
def test_non_reliable_messages_have_no_offset(broker_process: BrokerProcess, protocol: str) -> None:
    url, topic = broker_process.url, f"/default/n-{protocol}"
    danube("produce", "-s", url, "-t", topic, "-m", "first")
    consuming = Consuming(
        *(url, "-t", topic, "-c", "1", "--timeout", "20", "--sub-type", "exclusive", "--protocol", protocol)
    )
    # Over gRPC, a message to a non-reliable topic is lost while the consumer's stream is still opening.
    danube("produce", "-s", url, "-t", topic, "-m", "hello", "-c", "5", "-i", "200", "--protocol", protocol)
    status, out, _ = consuming.result()
    assert status == 0
    assert out == "Received message: hello, Size: 5 bytes, Total received: 1\n"


@pytest.mark.parametrize(
    ("start", "expected"), [("earliest", [0, 1, 2]), ("1", [1, 2]), ("2020-01-01", [0, 1, 2])]
)
def test_a_new_subscription_begins_where_it_is_told(
    broker_process: BrokerProcess, start: str, expected: list[int]
) -> None:
    url, topic = broker_process.url, f"/default/from-{start}"
    danube("produce", "-s", url, "-t", topic, "-m", "x", "--reliable", "-c", "3", "-i", "100")
    consuming = Consuming(
        *(url, "-t", topic, "-c", str(len(expected)), "--timeout", "20", "-o", "json", "--start", start)
    )
    status, out, _ = consuming.result()
    assert status == 0
    assert [json.loads(line)["offset"] for line in out.splitlines()] == expected


def test_a_producer_of_its_own_name_goes_on_after_its_last_message(broker_process: BrokerProcess) -> None:
    produce = (
        "produce",
        "-s",
        broker_process.url,
        "-t",
        "/default/own",
        "-m",
        "x",
        "--reliable",
        "-n",
        "shop",
    )
    assert "1/1 sent, offset 0" in danube(*produce).stdout
    assert "1/1 sent, offset 1" in danube(*produce).stdout


def test_what_was_not_acked_survives_a_killed_broker(own_broker: BrokerProcess) -> None:
    url = own_broker.url
    produce = ["produce", "-s", url, "-t", "/default/d", "--reliable", "-i", "100"]
    danube(*produce, "-m", "first")
    assert Consuming(url, "-t", "/default/d", "--timeout", "0.1").result()[0] == 0
    assert "Success: 2" in danube(*produce, "-m", "kept", "-c", "2").stdout
    own_broker.stop(signal.SIGKILL)
    own_broker.start()
    status, out, err = Consuming(url, "-t", "/default/d", "-c", "2", "--timeout", "20", "-o", "json").result()
    assert status == 0, err
    assert [(m["offset"], m["payload"]) for m in map(json.loads, out.splitlines())] == [
        (1, "kept"),
        (2, "kept"),
    ]


@pytest.mark.parametrize("protocol", ["native", "grpc"])
def test_errors_are_sentences_on_stderr(broker_process: BrokerProcess, protocol: str) -> None:
    url = broker_process.url
    ways = ("-s", url, "--protocol", protocol)
    bad_name = danube("produce", *ways, "-t", "no-slash", "-m", "x")
    assert bad_name.returncode == 1
    assert "/namespace/topic" in bad_name.stderr
    no_topic = danube("consume", *ways, "-t", "/default/none", "-m", "s")
    assert no_topic.returncode == 1
    assert re.search(r"no such topic: /default/none|topic /default/none not found", no_topic.stderr)
    danube("produce", *ways, "-t", "/default/s", "-m", "x")
    no_subject = danube("produce", *ways, "-t", "/default/s", "-m", "x", "--schema-subject", "nope")
    assert no_subject.returncode == 1
    assert "not found" in no_subject.stderr
    for failed in (bad_name, no_topic, no_subject):
        assert "Traceback" not in failed.stderr


def test_single_failures_are_counted_but_do_not_change_the_status(broker_process: BrokerProcess) -> None:
    url = broker_process.url
    stdin = b"small\n" + b"x" * 4_190_000 + b"\nsmall\n"
    sent = danube("produce", "-s", url, "-t", "/default/e", "--reliable", "-f", "-", stdin=stdin)
    assert sent.returncode == 0
    assert sent.stdout.splitlines()[-2:] == ["Success: 2", "Errors: 1"]
    assert "2 failed: /default/e: a payload of 4190000 bytes exceeds" in sent.stderr


def test_too_few_messages_before_the_timeout_is_a_failure(broker_process: BrokerProcess) -> None:
    url = broker_process.url
    danube("produce", "-s", url, "-t", "/default/q", "-m", "x", "--reliable")
    status, _, err = Consuming(url, "-t", "/default/q", "-c", "1", "--timeout", "0.2").result()
    assert status == 1
    assert "0 of 1 messages came before the timeout" in err


def test_ctrl_c_ends_a_consumer_quietly(broker_process: BrokerProcess) -> None:
    url = broker_process.url
    danube("produce", "-s", url, "-t", "/default/c", "-m", "x", "--reliable")
    consuming = Consuming(url, "-t", "/default/c")
    consuming.process.send_signal(signal.SIGINT)
    status, out, err = consuming.result()
    assert (status, out) == (0, "")
    assert err == "Stopped after 0 messages\n"


def test_ctrl_c_ends_a_producer_with_its_summary(broker_process: BrokerProcess) -> None:
    producing = subprocess.Popen(
        [*DANUBE, "produce", "-s", broker_process.url, "-t", "/default/i", "-m", "x", "-c", "1000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert producing.stdout is not None
    while "1/1000 sent" not in (line := producing.stdout.readline()):
        assert line, "the producer ended early"
    producing.send_signal(signal.SIGINT)
    out, err = producing.communicate(timeout=SECONDS_MAX)
    assert producing.returncode == 130
    assert "Success: " in out
    assert "Traceback" not in err


def test_a_broker_stops_cleanly_and_serves_metrics(own_broker: BrokerProcess) -> None:
    danube("produce", "-s", own_broker.url, "-t", "/default/m", "-m", "x", "--reliable")
    with urlopen(f"http://127.0.0.1:{own_broker.metrics_port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert re.search(r'danube_topic_messages_in_total\{broker="\d+",topic="/default/m"\} 1\.0', text)
    with urlopen(f"http://127.0.0.1:{own_broker.metrics_port}/health", timeout=10) as answer:
        assert answer.read() == b"OK"
    assert own_broker.stop(signal.SIGTERM) == 0
    assert "broker stopped" in own_broker.log[-1]
    assert all(json.loads(line)["level"] == "info" for line in own_broker.log)


def test_a_second_broker_on_the_same_folder_is_refused(broker_process: BrokerProcess) -> None:
    second = danube(
        *(
            "broker",
            "--data-dir",
            str(broker_process.data_dir),
            "--broker-addr",
            "127.0.0.1:0",
            "--admin-addr",
            "127.0.0.1:0",
        ),
        *("--admin-addr", "127.0.0.1:0", "--prom-exporter", "off"),
    )
    assert second.returncode == 1
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize(("protocol", "words"), [("native", "cannot be reached"), ("grpc", "UNAVAILABLE")])
def test_no_broker_is_said_so(protocol: str, words: str) -> None:
    result = danube("produce", "-s", f"http://127.0.0.1:{free_port()}", "-m", "x", "--protocol", protocol)
    assert result.returncode == 1
    assert words in result.stderr
    assert "Traceback" not in result.stderr
