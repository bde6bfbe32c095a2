"""Options of `danube bench` that are refused before anything is connected to."""

import pytest
from click.testing import CliRunner, Result

from pydanube.cli.bench import bench


def run(*arguments: str) -> Result:
    return CliRunner().invoke(bench, arguments)


@pytest.mark.parametrize("command", ["publish", "consume", "latency"])
def test_each_command_has_the_agreed_options(command: str) -> None:
    shown = run(command, "--help").output
    for option in (
        "--broker",
        "--protocol",
        "--reliable",
        "--size",
        "--count",
        "--output",
        "--plot",
        "--batch",
    ):
        assert option in shown


@pytest.mark.parametrize("address", ["http://", "host:port", "a/b:1", "ftp://host:1"])
def test_an_address_that_cannot_be_one_is_refused(address: str) -> None:
    refused = run("publish", "--broker", address)
    assert refused.exit_code == 2
    assert "invalid broker address" in refused.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("publish", "--size", "99999999"), "--size 99999999"),
        (("publish", "--processes", "2"), "--processes 2 would leave some idle"),
        (("publish", "--protocol", "grpc", "--send", "many"), "need the native protocol"),
        (("consume", "--non-reliable"), "danube bench latency"),
        (("consume", "--protocol", "grpc", "--read", "batches"), "--read batches needs the native protocol"),
        (("consume", "--protocol", "grpc", "--topic", "/default/t"), "leave out --topic"),
        (("consume", "--count", "300000000"), "too much to verify"),
        (("latency", "--size", "4"), "at least 8 bytes"),
        (("publish", "--plot", "x.pdf"), ".png or .svg"),
    ],
)
def test_what_makes_no_sense_is_refused_with_what_to_do(arguments: tuple[str, ...], words: str) -> None:
    refused = run(*arguments, "--broker", "127.0.0.1:1")
    assert refused.exit_code == 2
    assert words in refused.output
