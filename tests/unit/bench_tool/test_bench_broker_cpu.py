"""Finding a broker on this machine, and what it costs."""

import os
import socket
import time

import pytest

from pydanube.bench.broker_cpu import cpu_seconds, pid_of_listener


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_a_listener_is_found_by_its_port(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        assert pid_of_listener(host, port) == os.getpid()
    assert pid_of_listener(host, port) is None


def test_a_connection_is_not_a_listener() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as connection,
    ):
        assert pid_of_listener("127.0.0.1", connection.getsockname()[1]) is None


def test_a_broker_elsewhere_is_not_looked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert pid_of_listener("192.0.2.1", listener.getsockname()[1]) is None


def test_work_costs_cpu() -> None:
    before = cpu_seconds(os.getpid())
    start = time.process_time()
    while time.process_time() - start < 0.05:  # the kernel counts in hundredths of a second
        sum(range(10_000))
    assert cpu_seconds(os.getpid()) > before
