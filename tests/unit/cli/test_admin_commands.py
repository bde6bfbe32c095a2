"""Options of the administrative commands, and how they end, as far as no broker is needed."""

import re
import socket

import click
import pytest
from click.testing import CliRunner, Result

from pydanube.cli.main import main
from pydanube.cli.message_filter import MessageFilter
from pydanube.cli.messages import ShownMessage, message_document
from pydanube.cli.topic_argument import full_name


def danube(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, arguments, env=env)


FAILURE_POLICY = (
    *("subscriptions", "set-failure-policy", "/a/b", "-s", "x", "--max-redelivery-count", "1"),
    *("--ack-timeout-ms", "1", "--base-redelivery-delay-ms", "1", "--max-redelivery-delay-ms", "1"),
)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["topics", "list", "--namespace", "a", "--broker", "1"], "exclude each other"),
        (["topics", "create", "orders"], "'orders' has no namespace: write /default/orders"),
        (["topics", "delete", "/a b/c"], "invalid topic name '/a b/c'"),
        (["topics", "create", "/a/b", "--dispatch-strategy", "maybe"], "'maybe' is not one of"),
        (["topics", "create", "/a/b", "--partitions", "0"], "0 is not in the range"),
        (["topics", "set-policies", "/a/b"], "name limits to set"),
        (["topics", "set-policies", "/a/b", "--inherit", "--max-publish-rate", "1"], "or say --inherit"),
        (["topics", "set-policies", "/a/b", "--max-publish-rate", "4294967296"], "is not in the range"),
        (["topics", "unsubscribe", "/a/b"], "Missing option '-s' / '--subscription'"),
        (["namespaces", "set-policies", "a"], "nothing to change"),
        (["subscriptions", "reset", "/a/b", "-s", "x"], "Missing option '--to'"),
        (["subscriptions", "reset", "/a/b", "-s", "x", "--to", "soon"], "'soon' is neither earliest"),
        (["subscriptions", "lag", "/a/b", "--until", "0"], "--until needs --watch"),
        ([*FAILURE_POLICY, "--poison-policy", "dead_letter"], "needs a --dead-letter-topic"),
        ([*FAILURE_POLICY, "--poison-policy", "shrug"], "'shrug' is not one of"),
        (
            ["subscriptions", "set-dispatch-config", "/a/b", "-s", "x", "--max-unacked-messages", "10001"],
            "10001 is not in the range",
        ),
        (["schemas", "get"], "give either --id or --subject"),
        (["schemas", "get", "--id", "1", "--subject", "s"], "give either --id or --subject"),
        (["schemas", "register", "s", "--schema-type", "avro"], "give the definition by --file or --schema"),
        (["schemas", "check", "s", "--schema-type", "avro", "--file", __file__, "--schema", "x"], "exclude"),
        (["brokers", "unload"], "Missing option '--broker-id'"),
        (["cluster", "promote-node", "--node-id", "0"], "0 is not in the range"),
        (["peek", "/a/b", "--last", "1", "--from", "2"], "exclude each other"),
        (["tail", "/a/b", "--grep", "("], "is no regular expression"),
        (["tail", "/a/b", "--attribute", "=x"], "names no attribute"),
        (["tail", "b"], "'b' has no namespace"),
        (["replay", "/a/b"], "Missing option '--to'"),
        (["completion", "csh"], "'csh' is not one of"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_to_do(arguments: list[str], words: str) -> None:
    result = danube(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def administrative_commands() -> list[tuple[str, ...]]:
    """One of each group that needs nothing but a broker."""
    return [
        ("topics", "list"),
        ("topics", "stats", "/a/b"),
        ("subscriptions", "list", "/a/b"),
        ("namespaces", "list"),
        ("brokers", "list"),
        ("cluster", "status"),
        ("schemas", "list"),
        ("peek", "/a/b"),
    ]


@pytest.mark.parametrize("command", administrative_commands(), ids=" ".join)
def test_a_broker_that_is_not_there_is_told_from_a_refusal(command: tuple[str, ...]) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        result = danube(*command, "--admin-addr", address)
    assert result.exit_code == 3
    assert f"no broker answers on {address}: start one by `danube broker`" in result.stderr


def test_the_address_comes_from_the_variable_of_danube_admin_too() -> None:
    result = danube("brokers", "list", env={"DANUBE_ADMIN_ENDPOINT": "no/where"})
    assert result.exit_code == 2
    assert "'no/where' is no address" in result.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_of_this_command(shell: str) -> None:
    result = danube("completion", shell)
    assert result.exit_code == 0, result.output
    assert "_DANUBE_COMPLETE" in result.stdout


def test_names_of_topics_are_taken_in_three_forms() -> None:
    assert full_name("/a/b") == full_name("a/b") == full_name("b", "a") == "/a/b"
    assert full_name("/a/b", "elsewhere") == "/a/b"
    with pytest.raises(click.BadParameter):
        full_name("b")


def message(**fields: object) -> ShownMessage:
    known: dict[str, object] = {
        "payload": b"refund 7",
        "topic": "/a/b",
        "offset": 3,
        "producer": "shop",
        "publish_time_ms": 1,
        "attributes": {"kind": "order"},
        "key": "eu-1",
    }
    return ShownMessage(**(known | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        (MessageFilter(), True),
        (MessageFilter(key="eu-*"), True),
        (MessageFilter(key="us-*"), False),
        (MessageFilter(producer="sh?p"), True),
        (MessageFilter(producer="desk"), False),
        (MessageFilter(attributes=(("kind", "ord*"),)), True),
        (MessageFilter(attributes=(("kind", "ord*"), ("other", "*"))), False),
        (MessageFilter(content=re.compile(rb"refund \d")), True),
        (MessageFilter(content=re.compile(rb"^\d")), False),
        (MessageFilter(key="eu-*", content=re.compile(b"nothing")), False),
    ],
)
def test_a_filter_takes_what_fits_in_every_way(wanted: MessageFilter, takes: bool) -> None:
    assert wanted.takes(message()) is takes


def test_a_message_without_a_key_matches_no_pattern_of_keys() -> None:
    assert not MessageFilter(key="*").takes(message(key=None))


def test_a_payload_that_is_no_text_is_base64_in_a_document() -> None:
    document = message_document(message(payload=b"\xff", key=None))
    assert document["payload_base64"] == "/w=="
    assert "payload" not in document
    assert "routing_key" not in document
