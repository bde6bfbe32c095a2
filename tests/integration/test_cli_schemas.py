"""`danube` and schemas: references between them, and reading with one version."""

import json
from collections.abc import Callable, Iterator

import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from click.testing import CliRunner, Result

from pydanube.cli.main import main
from pydanube.client import SchemaRef, blocking

MONEY = '{"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}'
ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]}'
FIRST = '{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
SECOND = '{"type": "object", "properties": {"id": {"type": ["integer", "string"]}}, "required": ["id"]}'

Danube = Callable[..., Result]


@pytest.fixture(scope="module")
def broker_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """One broker for all tests; each uses names of its own."""
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture
def url(broker_process: AdminProcess) -> str:
    return f"danube://{broker_process.address}"


@pytest.fixture
def danube(broker_process: AdminProcess, url: str) -> Danube:
    environment = {"DANUBE_ADMIN_ADDR": broker_process.admin_addr, "DANUBE_SERVICE_ADDR": url}

    def run(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, arguments, env=environment)
        assert result.exit_code == code, result.output
        return result

    return run


def register(danube: Danube, subject: str, definition: str, *more: str, code: int = 0) -> Result:
    return danube(
        *("schemas", "register", subject, "--schema-type", "avro", "--schema", definition), *more, code=code
    )


def test_references(danube: Danube) -> None:
    register(danube, "money", MONEY)
    reference = ("--reference", "shop.Money=money:1")
    assert "shop.Money" in register(danube, "order", ORDER, code=1).stderr
    assert "Version:" in register(danube, "order", ORDER, *reference).stdout
    shown = json.loads(danube("schemas", "get", "--subject", "order", "-o", "json").stdout)
    assert shown["references"] == [{"name": "shop.Money", "subject": "money", "version": 1}]
    assert "shop.Money=money:1" in danube("schemas", "get", "--subject", "order").stdout
    plain = json.loads(danube("schemas", "get", "--subject", "money", "-o", "json").stdout)
    assert "references" not in plain
    refused = danube("schemas", "delete", "money", "--version", "1", "--confirm", code=1)
    assert "version 1 of 'order'" in refused.stderr

    check = ("schemas", "check", "order", "--schema-type", "avro", *reference, "--exit-code", "--schema")
    assert "COMPATIBLE" in danube(*check, ORDER).stdout
    narrower = ORDER.replace('"price"', '"total"')
    assert "NOT COMPATIBLE" in danube(*check, narrower, code=1).stdout
    missing = register(danube, "other", ORDER, "--reference", "shop.Money=money:7", code=1)
    assert "version 7 of subject 'money', which does not exist" in missing.stderr


@pytest.mark.parametrize("reference", ["money", "=money:1", "a=money", "a=:1", "a=money:0", "a=money:x"])
def test_a_reference_that_is_none(danube: Danube, reference: str) -> None:
    assert "is no reference" in register(danube, "x", ORDER, "--reference", reference, code=2).stderr


@pytest.fixture(scope="module")
def topic(broker_process: AdminProcess) -> str:
    """With an order of each of two versions, and one that only the second takes."""
    with blocking.connect(f"danube://{broker_process.address}") as client:
        for definition in (FIRST, SECOND):
            client.schemas.register("pinned", definition, "json_schema")
        for version, payload in ((1, b'{"id": 1}'), (2, b'{"id": 2}'), (2, b'{"id": "three"}')):
            with client.producer("/default/pinned", schema=SchemaRef("pinned", version=version)) as producer:
                producer.send(payload)
    return "/default/pinned"


@pytest.mark.parametrize("command", ["peek", "tail", "consume", "consume over gRPC"])
def test_messages_are_read_with_the_version_asked_for(
    danube: Danube, url: str, topic: str, command: str
) -> None:
    match command:
        case "peek":
            arguments = ["peek", topic]
        case "tail":
            arguments = ["tail", topic, "--from", "earliest", "--count", "3"]
        case "consume":
            arguments = ["consume", "-s", url, "-t", topic, "-m", "native", "--start", "earliest", "-c", "3"]
        case _:
            with blocking.connect(url) as client:
                client.consumer(topic, subscription="grpc", start="earliest").open()
            arguments = ["consume", "-s", url.replace("danube", "http", 1), "--protocol", "grpc", "-t", topic]
            arguments += ["-m", "grpc", "-c", "3"]
    result = danube(*arguments, "--schema-version", "1", "-o", "json")
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each.get("decoded") for each in shown] == [{"id": 1}, {"id": 2}, None]
    assert shown[2]["payload"] == '{"id": "three"}'
    assert "offset 2 is shown as it is: the payload does not fit version 1" in result.stderr


@pytest.mark.parametrize("command", ["peek", "tail", "consume"])
def test_a_version_there_is_not(danube: Danube, url: str, topic: str, command: str) -> None:
    where = ["-t", topic, "-s", url, "-m", "never"] if command == "consume" else [topic]
    assert "no version 9" in danube(command, *where, "--schema-version", "9", code=1).stderr
    assert "exclude each other" in danube(command, *where, "--schema-version", "1", "--raw", code=2).stderr
    with blocking.connect(url) as client, client.producer("/default/unbound") as producer:
        producer.send(b"x")
    where = [each.replace(topic, "/default/unbound") for each in where]
    assert "follows no schema subject" in danube(command, *where, "--schema-version", "1", code=1).stderr


def test_nothing_was_subscribed_for_a_version_there_is_not(danube: Danube, topic: str) -> None:
    listed = danube("topics", "subscriptions", topic, "-o", "json").stdout
    assert "never" not in listed
