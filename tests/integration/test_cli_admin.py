"""A broker administered by the `danube` command alone, as an operator would."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_harness.admin_process import AdminProcess, admin_process
from click.testing import CliRunner, Result

from pydanube.cli.main import main
from pydanube.client import blocking

ORDER_SCHEMA = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
AVRO_SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "amount", "type": "long"}]}
PROTO_SCHEMA = 'syntax = "proto3"; message Order { int64 amount = 1; }'


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """One broker for all tests; each uses names of its own."""
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        yield process


class Operator:
    """Somebody with the `danube` command and the addresses of a broker."""

    def __init__(self, process: AdminProcess) -> None:
        self.url = f"danube://{process.address}"
        self._environment = {"DANUBE_ADMIN_ADDR": process.admin_addr, "DANUBE_SERVICE_ADDR": self.url}

    def danube(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, arguments, env=self._environment)

    def done(self, *arguments: str) -> str:
        """What a command that must succeed says."""
        result = self.danube(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    def document(self, *arguments: str) -> Any:
        return json.loads(self.done(*arguments, "--output", "json"))

    def lines(self, *arguments: str) -> list[Any]:
        return [json.loads(line) for line in self.done(*arguments, "--output", "json").splitlines()]

    def refused(self, *arguments: str) -> str:
        result = self.danube(*arguments)
        assert result.exit_code == 1, result.output
        return result.stderr

    def publish(self, topic: str, *payloads: str, **fields: Any) -> None:
        with blocking.connect(self.url) as client, client.producer(topic) as producer:
            for payload in payloads:
                producer.send(payload.encode(), **fields)

    def consume(self, topic: str, subscription: str, count: int) -> list[str]:
        arguments = ("-t", topic, "-m", subscription, "--start", "earliest", "--count", str(count))
        found = self.lines("consume", "-s", self.url, *arguments, "--timeout", "20")
        return [message["payload"] for message in found]


@pytest.fixture
def operator(broker_process: AdminProcess) -> Operator:
    return Operator(broker_process)


# brokers, cluster, namespaces


def test_the_one_broker_is_listed(operator: Operator) -> None:
    [broker] = operator.document("brokers", "list")
    assert list(broker) == [
        *("broker_id", "broker_status", "broker_addr", "broker_role", "admin_addr", "metrics_addr")
    ]
    assert (broker["broker_status"], broker["broker_role"]) == ("active", "None")
    assert operator.done("brokers", "leader-broker") == 'Leader Broker: "not_found"\n'
    assert "not part of a cluster" in operator.refused("brokers", "balance")
    assert broker["broker_id"] in operator.done("cluster", "status").splitlines()[0].split()


def test_a_namespace_is_made_limited_and_deleted(operator: Operator) -> None:
    assert "Namespace created" in operator.done("namespaces", "create", "limited")
    assert "limited" in operator.document("namespaces", "list")
    set_policies = operator.document(
        "namespaces", "set-policies", "limited", "--max-message-size", "10", "--max-publish-rate", "0"
    )
    assert set_policies == operator.document("namespaces", "policies", "limited")
    assert set_policies["max_message_size"] == 10
    operator.done("topics", "create", "limited/small", "--dispatch-strategy", "reliable")
    assert operator.document("namespaces", "topics", "limited") == ["limited/small"]
    sent = operator.danube(
        "produce", "-s", operator.url, "-t", "/limited/small", "-m", "x" * 11, "--reliable"
    )
    assert "Errors: 1" in sent.stdout
    own = operator.document("topics", "set-policies", "limited/small", "--max-message-size", "20")
    assert (own["max_message_size"], own["inherited"]) == (20, False)
    assert operator.document("topics", "set-policies", "limited/small", "--inherit")["inherited"] is True
    assert operator.document("topics", "policies", "limited/small")["max_message_size"] == 10
    operator.refused("namespaces", "delete", "limited")
    operator.done("topics", "delete", "limited/small")
    operator.done("namespaces", "delete", "limited")
    assert "limited" not in operator.document("namespaces", "list")


# topics


def test_topics_of_all_namespaces_are_listed(operator: Operator) -> None:
    operator.done("namespaces", "create", "listed")
    assert "Topic created" in operator.done("topics", "create", "/listed/plain")
    created = operator.done("topics", "create", "parted", "--namespace", "listed", "--partitions", "2")
    assert "Partitioned topic created" in created
    operator.done("topics", "create", "default/listed", "--dispatch-strategy", "reliable")
    listed = {topic["name"]: topic for topic in operator.document("topics", "list")}
    assert list(listed) == sorted(listed)
    assert {"/listed/plain", "/listed/parted-part-0", "/listed/parted-part-1", "/default/listed"} <= set(
        listed
    )
    assert listed["/default/listed"]["delivery"] == "Reliable"
    assert list(listed["/listed/plain"]) == ["name", "broker_id", "delivery"]
    names = [topic["name"] for topic in operator.document("topics", "list", "--namespace", "listed")]
    assert names == ["/listed/parted-part-0", "/listed/parted-part-1", "/listed/plain"]
    broker_id = listed["/listed/plain"]["broker_id"]
    assert len(operator.document("topics", "list", "--broker", broker_id)) >= 4
    assert "/listed/plain" in operator.done("topics", "list", "--namespace", "listed")
    described = operator.document("topics", "describe", "listed/parted")
    assert described["partitions"] == ["/listed/parted-part-0", "/listed/parted-part-1"]
    assert operator.document("topics", "describe", "listed/plain")["delivery"] == "NonReliable"


def test_a_topic_is_described_with_its_storage_and_figures(operator: Operator) -> None:
    operator.publish("/default/described_here", "one", "two")
    operator.consume("/default/described_here", "desk", 1)
    described = operator.document("topics", "describe", "default/described_here")
    assert described["topic"] == "/default/described_here"
    assert (described["delivery"], described["subscriptions"]) == ("Reliable", ["desk"])
    assert (described["schema_subject"], described["schema_id"], described["next_offset"]) == (None, None, 2)
    [figures] = operator.document("topics", "stats", "default/described_here")
    assert (figures["messages_in"], figures["next_offset"], figures["backlog"]) == (2, 2, 1)
    assert [each["subscription"] for each in figures["subscriptions"]] == ["desk"]
    assert "desk" in operator.done("topics", "stats", "default/described_here")
    assert operator.document("topics", "subscriptions", "default/described_here") == ["desk"]


def test_what_does_not_exist_is_refused_with_a_reason(operator: Operator) -> None:
    for arguments in (
        ("topics", "describe", "/default/nobody"),
        ("topics", "delete", "/default/nobody"),
        ("topics", "stats", "/default/nobody"),
        ("topics", "unsubscribe", "/default/nobody", "-s", "x"),
        ("subscriptions", "lag", "/default/nobody"),
        ("peek", "/default/nobody"),
        ("schemas", "versions", "nobody"),
    ):
        assert "nobody" in operator.refused(*arguments), arguments


# subscriptions


def test_a_subscription_is_moved_back_and_forward(operator: Operator) -> None:
    topic = "/default/moved"
    operator.publish(topic, "a", "b", "c")
    assert operator.consume(topic, "desk", 3) == ["a", "b", "c"]
    moved = operator.document("subscriptions", "reset", topic, "-s", "desk", "--to", "1")
    assert (moved["next_offset"], moved["lag"]) == (1, 2)
    [lag] = operator.document("subscriptions", "lag", topic)
    assert (lag["subscription"], lag["lag"]) == ("desk", 2)
    assert operator.consume(topic, "desk", 2) == ["b", "c"]
    operator.done("subscriptions", "seek", topic, "-s", "desk", "--to", "earliest")
    purged = operator.document("subscriptions", "purge", topic, "-s", "desk")
    assert (purged["skipped"], purged["subscriptions"]) == (3, 1)
    described = operator.document("subscriptions", "describe", topic, "-s", "desk")
    assert (described["lag"], described["type"], described["next_offset"]) == (0, "shared", 3)
    operator.done("subscriptions", "reset", topic, "-s", "desk", "--to", "earliest")
    assert operator.document("topics", "purge", topic)["skipped"] == 3
    operator.done("topics", "unsubscribe", topic, "-s", "desk")
    assert operator.document("subscriptions", "list", topic) == []
    assert "has no subscription desk" in operator.refused("subscriptions", "lag", topic, "-s", "desk")


def test_lag_is_watched_until_it_is_gone(operator: Operator) -> None:
    topic = "/default/watched"
    operator.publish(topic, "a")
    operator.consume(topic, "desk", 1)
    [line] = operator.lines("subscriptions", "lag", topic, "--watch", "0.1", "--until", "0")
    assert (line["subscription"], line["lag"]) == ("desk", 0)
    assert line["time"] > 0


def test_failure_policy_and_window_are_set_and_shown(operator: Operator) -> None:
    topic = "/default/failing"
    operator.publish(topic, "a")
    operator.consume(topic, "desk", 1)
    where = (topic, "-s", "desk")
    numbers = {
        "max_redelivery_count": 3,
        "ack_timeout_ms": 1000,
        "base_redelivery_delay_ms": 10,
        "max_redelivery_delay_ms": 100,
    }
    flags = [word for name, value in numbers.items() for word in ("--" + name.replace("_", "-"), str(value))]
    dead_letters = ("--poison-policy", "dead-letter", "--dead-letter-topic", "/default/dead")
    operator.done("topics", "set-failure-policy", *where, *flags, *dead_letters)
    assert operator.document("topics", "get-failure-policy", *where) == {
        "topic": topic,
        "subscription": "desk",
        **numbers,
        "backoff_strategy": "fixed",
        "dead_letter_topic": "/default/dead",
        "poison_policy": "dead_letter",
    }
    assert operator.document("topics", "get-dispatch-config", *where)["max_unacked_messages"] is None
    operator.done("topics", "set-dispatch-config", *where, "--max-unacked-messages", "77")
    assert operator.document("topics", "get-dispatch-config", *where)["max_unacked_messages"] == 77
    assert operator.document("subscriptions", "describe", *where)["max_unacked_messages"] == 77


# schemas


def test_a_subject_lives_from_its_first_version_to_its_last(operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "order.json"
    file.write_text(json.dumps(ORDER_SCHEMA))
    kind = ("--schema-type", "json_schema")
    made = operator.document("schemas", "register", "life", *kind, "--file", str(file), "--tags", "a")
    assert (made["subject"], made["version"], made["is_new_version"]) == ("life", 1, True)
    again = operator.document("schemas", "register", "life", *kind, "--file", str(file))
    assert (again["version"], again["is_new_version"]) == (1, False)
    got = operator.document("schemas", "get", "--subject", "life")
    assert (got["schema_id"], got["tags"], got["compatibility_mode"]) == (
        made["schema_id"],
        ["a"],
        "BACKWARD",
    )
    assert got == operator.document("schemas", "get", "--id", str(made["schema_id"]), "--version", "1")

    breaking = json.dumps({**ORDER_SCHEMA, "properties": {"amount": {"type": "string"}}})
    assert "NOT COMPATIBLE" in operator.done("schemas", "check", "life", *kind, "--schema", breaking)
    assert (
        operator.danube("schemas", "check", "life", *kind, "--schema", breaking, "--exit-code").exit_code == 1
    )
    operator.refused("schemas", "register", "life", *kind, "--schema", breaking)
    operator.done("schemas", "set-compatibility", "life", "--mode", "none")
    assert operator.document("schemas", "get-compatibility", "life")["compatibility_mode"] == "NONE"
    operator.done("schemas", "register", "life", *kind, "--schema", breaking)
    assert [each["version"] for each in operator.document("schemas", "versions", "life")] == [1, 2]
    assert "add --confirm" in operator.refused("schemas", "delete", "life", "--version", "2")
    operator.done("schemas", "delete", "life", "--version", "2", "--confirm")
    assert [each["version"] for each in operator.document("schemas", "versions", "life")] == [1]
    [subject] = [each for each in operator.document("schemas", "list-subjects") if each["subject"] == "life"]
    assert (subject["latest_version"], subject["schema_type"]) == (1, "json_schema")


def test_a_topic_follows_a_subject(operator: Operator) -> None:
    operator.done(
        "schemas", "register", "strict", "--schema-type", "json_schema", "--schema", json.dumps(ORDER_SCHEMA)
    )
    operator.done("topics", "create", "default/strict", "--dispatch-strategy", "reliable")
    policy = ("--validation-policy", "enforce", "--enable-payload-validation")
    told = operator.done("topics", "configure-schema", "default/strict", "--subject", "strict", *policy)
    assert "ENFORCE" in told
    assert "ENABLED" in told
    config = operator.document("topics", "get-schema-config", "default/strict")
    assert (config["schema_subject"], config["validation_policy"]) == ("strict", "ENFORCE")
    for protocol, scheme in (("native", "danube"), ("grpc", "http")):
        url = operator.url.replace("danube", scheme, 1)
        produce = ("produce", "-s", url, "--protocol", protocol, "-t", "/default/strict", "--reliable")
        refused = operator.done(*produce, "-m", "{}", "--schema-subject", "strict")
        assert "Errors: 1" in refused
        assert "Success: 1" in operator.done(*produce, "-m", '{"amount": 5}', "--schema-subject", "strict")
    operator.done("topics", "set-validation-policy", "default/strict", "--policy", "none")
    config = operator.document("topics", "get-schema-config", "default/strict")
    assert (config["validation_policy"], config["enable_payload_validation"]) == ("NONE", False)
    assert operator.document("topics", "describe", "default/strict")["schema_type"] == "json_schema"


FORMATS = {
    "json_schema": (json.dumps(ORDER_SCHEMA), b'{"amount": 5}'),
    "avro": (json.dumps(AVRO_SCHEMA), b"\x0a"),
    "protobuf": (PROTO_SCHEMA, b"\x08\x05"),
}
"""Each with a definition and a payload that says amount 5."""


@pytest.mark.parametrize("protocol", ["native", "grpc"])
@pytest.mark.parametrize("kind", list(FORMATS))
def test_payloads_are_decoded_by_a_schema_registered_on_the_way(
    operator: Operator, tmp_path: Path, kind: str, protocol: str
) -> None:
    definition, payload = FORMATS[kind]
    schema, message = tmp_path / "schema", tmp_path / "message"
    schema.write_text(definition)
    message.write_bytes(payload)
    topic = f"/default/decoded_{kind}_{protocol}"
    url = operator.url if protocol == "native" else operator.url.replace("danube", "http", 1)
    sent = operator.done(
        *("produce", "-s", url, "--protocol", protocol, "-t", topic, "-f", str(message), "--reliable"),
        *("--schema-file", str(schema), "--schema-type", kind),
    )
    assert "Auto-registering schema" in sent
    assert "Schema registered with ID" in sent
    assert "Success: 1" in sent
    expected = {"amount": "5"} if kind == "protobuf" else {"amount": 5}
    [peeked] = operator.lines("peek", topic)
    assert (peeked["decoded"], peeked["schema_version"]) == (expected, 1)
    [tailed] = operator.lines("tail", topic, "--from", "earliest", "--count", "1")
    assert tailed["decoded"] == expected
    assert "decoded" not in operator.lines("peek", topic, "--raw")[0]
    arguments = ("-t", topic, "-m", "desk", "--start", "earliest", "--count", "1")
    [consumed] = operator.lines("consume", "-s", operator.url, *arguments)
    assert consumed["decoded"] == expected


def test_a_schema_that_is_gone_leaves_payloads_as_they_are(operator: Operator) -> None:
    operator.publish("/default/schemaless", "text", schema_id=99_999, schema_version=1)
    result = operator.danube("peek", "/default/schemaless")
    assert result.exit_code == 0
    assert "text" in result.stdout
    assert "schema 99999 cannot be had" in result.stderr


# peek, tail, replay


def test_peeking_begins_where_it_is_told_and_consumes_nothing(operator: Operator) -> None:
    topic = "/default/peeked"
    operator.publish(topic, *(f"m{number}" for number in range(250)))
    assert [each["offset"] for each in operator.lines("peek", topic)] == list(range(10))
    assert [each["offset"] for each in operator.lines("peek", topic, "--last", "3")] == [247, 248, 249]
    assert len(operator.lines("peek", topic, "--count", "300")) == 250
    assert operator.lines("peek", topic, "--from", "120", "--count", "1")[0]["payload"] == "m120"
    operator.consume(topic, "desk", 5)
    assert operator.lines("peek", topic, "-s", "desk", "--count", "1")[0]["offset"] == 5
    [lag] = operator.document("subscriptions", "lag", topic)
    assert lag["lag"] == 245
    assert operator.danube("peek", topic, "--from", "latest").stderr == "No such messages\n"


def test_tail_shows_what_is_asked_for(operator: Operator) -> None:
    topic = "/default/tailed"
    operator.publish(topic, "apple", key="eu-1", attributes={"kind": "fruit"})
    operator.publish(topic, "beet", key="us-1", attributes={"kind": "root"})
    operator.publish(topic, "cherry", key="eu-2")
    begin = ("tail", topic, "--from", "earliest", "--timeout", "1")

    def shown(*filters: str) -> list[str]:
        return [each["payload"] for each in operator.lines(*begin, *filters)]

    assert shown() == ["apple", "beet", "cherry"]
    assert shown("--key", "eu-*") == ["apple", "cherry"]
    assert shown("--attribute", "kind=r*") == ["beet"]
    assert shown("--attribute", "kind", "--grep", "^a") == ["apple"]
    assert shown("--producer", "nobody") == []
    assert shown("--count", "2") == ["apple", "beet"]
    assert "offset 1" in operator.done(*begin, "--key", "us-1")


def test_messages_are_replayed_with_what_they_were(operator: Operator) -> None:
    source, target = "/default/dead_letters", "/default/second_chance"
    operator.done("topics", "create", source, "--dispatch-strategy", "reliable")
    nothing = operator.document("replay", source, "--to", target, "--dry-run")
    assert (nothing["read"], nothing["replayed"]) == (0, 0)
    operator.publish(source, "a", "b", key="eu", attributes={"kind": "order"})
    operator.publish(source, "c", key="us")
    counted = operator.document("replay", source, "--to", target, "--key", "eu", "--dry-run")
    assert (counted["read"], counted["replayed"]) == (3, 2)
    assert "second_chance" not in operator.done("topics", "list")
    replayed = operator.document("replay", source, "--to", target, "--key", "eu", "--rate", "1000")
    assert (replayed["read"], replayed["replayed"]) == (3, 2)
    first, second = operator.lines("peek", target)
    assert (first["payload"], second["payload"], first["routing_key"]) == ("a", "b", "eu")
    assert first["attributes"] == {"kind": "order", "x-replayed-from": source, "x-replayed-offset": "0"}


# every administrative command


def test_documents_are_json_or_yaml(operator: Operator) -> None:
    as_json = operator.document("namespaces", "policies", "default")
    as_yaml = yaml.safe_load(operator.done("namespaces", "policies", "default", "--output", "yaml"))
    assert as_json == as_yaml


def test_names_the_broker_knows_are_completed(operator: Operator, broker_process: AdminProcess) -> None:
    operator.publish("/default/completed", "a")
    operator.consume("/default/completed", "desk", 1)

    def completed(line: str) -> str:
        environment = {
            "DANUBE_ADMIN_ADDR": broker_process.admin_addr,
            "_DANUBE_COMPLETE": "bash_complete",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split()) - 1),
        }
        return CliRunner().invoke(main, prog_name="danube", env=environment).output

    assert completed("danube topics describe /default/comp") == "plain,/default/completed\n"
    assert completed("danube subscriptions lag default/completed --subscription d") == "plain,desk\n"
    assert "plain,seal\n" in completed("danube topics se")
