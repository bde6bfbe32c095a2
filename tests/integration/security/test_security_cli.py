"""The command line with a secured broker: let in by token or certificate, and managing who may do what."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_harness.running_broker import RunningBroker, StartBroker
from click.testing import CliRunner, Result

from pydanube.cli.main import main

Danube = Callable[..., Awaitable[Result]]
TOPIC = "/default/orders"


@pytest.fixture
def danube() -> Danube:
    """Run the command in a thread of its own: it has its own event loop."""

    async def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, arguments, env=env)

    return run


@pytest.fixture
def as_admin(danube: Danube, secured: RunningBroker, realm: Any) -> Danube:
    """The same, let in to the admin port as the super admin."""
    files = realm.files

    async def run(*arguments: str) -> Result:
        where = ("--admin-addr", secured.admin_address, "--ca", str(files.ca))
        return await danube(*arguments, *where, "--token", f"@{files.admin_token}")

    return run


@pytest.fixture
def alone() -> Danube:
    """Run the command in a process of its own: what the test's broker logs does not get into its stdout."""

    async def run(*arguments: str, env: dict[str, str] | None = None) -> Result:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", "from pydanube.cli.main import main; main()", *arguments),
            env=os.environ | (env or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        stdout, stderr = await process.communicate()
        assert process.returncode is not None
        return Result(CliRunner(), stdout, stderr, stdout + stderr, None, process.returncode, None)

    return run


async def test_roles_and_bindings_live_and_die(as_admin: Danube) -> None:
    assert (
        await as_admin("security", "roles", "create", "w", "--permissions", "Produce,Lookup")
    ).exit_code == 0
    shown = json.loads((await as_admin("security", "roles", "get", "w", "--output", "json")).stdout)
    assert shown == {"name": "w", "permissions": ["Produce", "Lookup"], "system": False}
    assert json.loads((await as_admin("security", "roles", "list", "--output", "json")).stdout) == [shown]
    of_ada = ("--principal-type", "user", "--principal-name", "ada", "--roles", "w")
    at_topic = ("--scope", "topic", "--resource", TOPIC)
    assert (await as_admin("security", "bindings", "create", "b1", *of_ada, *at_topic)).exit_code == 0
    expected = {
        "id": "b1",
        "principal_type": "user",
        "principal_name": "ada",
        "role_names": ["w"],
        "scope": "topic",
        "resource_name": TOPIC,
    }
    got = await as_admin("security", "bindings", "get", "b1", *at_topic, "--output", "json")
    assert json.loads(got.stdout) == expected
    for listing in ((), at_topic):
        listed = await as_admin("security", "bindings", "list", *listing, "--output", "json")
        assert json.loads(listed.stdout) == [expected]
    assert "ada" in (await as_admin("security", "bindings", "list")).stdout
    assert (await as_admin("security", "bindings", "delete", "b1", *at_topic)).exit_code == 0
    assert (await as_admin("security", "roles", "delete", "w")).exit_code == 0
    gone = await as_admin("security", "roles", "get", "w")
    assert (gone.exit_code, "no role 'w'" in gone.output) == (1, True)
    unknown = await as_admin("security", "roles", "create", "w", "--permissions", "Fly")
    assert (unknown.exit_code, "no permission 'Fly'" in unknown.output) == (1, True)


async def test_who_is_not_let_in_hears_what_to_do(danube: Danube, secured: RunningBroker, realm: Any) -> None:
    where = ("--admin-addr", secured.admin_address, "--ca", str(realm.files.ca))
    nobody = await danube("security", "roles", "list", *where)
    assert (nobody.exit_code, "DANUBE_ADMIN_TOKEN" in nobody.output) == (1, True)
    stranger = {"DANUBE_ADMIN_TOKEN": realm.token("stranger")}
    denied = await danube("security", "roles", "list", *where, env=stranger)
    assert (denied.exit_code, "permission denied" in denied.output) == (1, True)


@pytest.mark.parametrize("protocol", ["native", "grpc"])
async def test_messages_go_in_and_out_by_token(
    danube: Danube, secured: RunningBroker, realm: Any, protocol: str
) -> None:
    base = ("-s", f"https://{secured.address}", "-t", TOPIC, "--protocol", protocol)
    env = {"DANUBE_TOKEN": realm.token("admin"), "DANUBE_CA": str(realm.files.ca)}
    sent = await danube("produce", *base, "-m", "hello", "--reliable", env=env)
    assert sent.exit_code == 0, sent.output
    tail = ("tail", TOPIC, "-s", f"danubes://{secured.address}", "--from", "earliest", "--count", "1")
    shown = await danube(*tail, env=env)
    assert (shown.exit_code, "hello" in shown.stdout) == (0, True), shown.output
    refused = await danube("produce", *base, "-m", "x", "--reliable", env={"DANUBE_CA": env["DANUBE_CA"]})
    assert (refused.exit_code, "send a token" in refused.output) == (1, True)


async def test_tokens_are_made_and_checked_without_a_broker(danube: Danube, realm: Any) -> None:
    secret = {"DANUBE_JWT_SECRET_KEY": "a secret that is long enough to be one"}
    made = await danube("security", "tokens", "create", "--subject", "svc", "--ttl", "2h", env=secret)
    checked = await danube(
        "security", "tokens", "validate", "--token", made.stdout.strip(), "--output", "json", env=secret
    )
    document = json.loads(checked.stdout)
    assert (document["principal_type"], document["principal_name"]) == ("service_account", "svc")
    assert 7100 < document["remaining_seconds"] <= 7200
    other = {"DANUBE_JWT_SECRET_KEY": "another secret that is long enough, too"}
    bad = await danube("security", "tokens", "validate", "--token", made.stdout.strip(), env=other)
    assert (bad.exit_code, "signature" in bad.output) == (1, True)
    files = realm.files
    key = ("--key-file", str(files.token_key), "--key-id", "quickstart")
    signed = await danube("security", "tokens", "create", "--subject", "ada", "--type", "user", *key)
    check = ("--key-file", str(files.token_check_key), "--key-id", "quickstart")
    good = await danube("security", "tokens", "validate", "--token", signed.stdout.strip(), *check)
    assert (good.exit_code, "ada" in good.stdout) == (0, True), good.output
    assert (await danube("security", "tokens", "create", "--subject", "x")).exit_code == 2


async def test_quickstart_makes_what_a_broker_starts_with(danube: Danube, tmp_path: Path) -> None:
    made = await danube("security", "quickstart", str(tmp_path / "made"))
    assert made.exit_code == 0, made.output
    config = tmp_path / "made" / "auth.yml"
    checked = await danube("config", "check", str(config))
    assert (checked.exit_code, "warning" in checked.output) == (0, False), checked.output
    again = await danube("security", "quickstart", str(tmp_path / "made"))
    assert (again.exit_code, "exists already" in again.output) == (1, True)


@pytest.mark.parametrize("protocol", ["native", "grpc"])
@pytest.mark.parametrize("mode", ["tls", "mtls"])
async def test_a_secured_broker_is_measured_like_any_other(
    alone: Danube, start_broker: StartBroker, realm: Any, mode: str, protocol: str
) -> None:
    broker = await start_broker(auth=realm.auth(mode))
    files = realm.files
    identity = {
        "tls": ("--token", f"@{files.admin_token}"),
        "mtls": ("--cert", str(files.client), "--cert-key", str(files.client_key)),
    }
    run = ("bench", "publish", "--broker", broker.address, "--ca", str(files.ca), "--protocol", protocol)
    run += ("--count", "20", "--output", "json")
    measured = await alone(*run, *identity[mode])
    assert measured.exit_code == 0, measured.output
    document = json.loads(measured.stdout)
    assert document["messages"] == 20
    assert files.admin_token.read_text().strip() not in measured.output
    assert (await alone(*run)).exit_code == 1


async def test_a_schema_is_registered_by_whom_the_messages_are_from(
    alone: Danube, secured: RunningBroker, realm: Any, tmp_path: Path
) -> None:
    schema = tmp_path / "order.json"
    schema.write_text('{"type": "object"}')
    where = ("-s", f"danubes://{secured.address}", "-t", TOPIC)
    env = {"DANUBE_TOKEN": realm.token("admin"), "DANUBE_CA": str(realm.files.ca)}
    by_schema = ("--schema-file", str(schema), "--schema-type", "json_schema", "--reliable")
    for protocol in ("native", "grpc"):
        sent = await alone(
            "produce", *where, *by_schema, "-m", "{}", "--protocol", protocol, "-o", "yaml", env=env
        )
        assert sent.exit_code == 0, sent.output
        [message, summary] = yaml.safe_load_all(sent.stdout)
        assert (message["status"], summary) == ("ok", {"success": 1, "errors": 0})


@pytest.mark.parametrize("command", ["tail", "peek", "consume"])
async def test_messages_are_a_stream_of_documents(alone: Danube, broker: RunningBroker, command: str) -> None:
    url = f"danube://{broker.address}"
    sent = await alone(
        "produce", "-s", url, "-t", TOPIC, "-m", "a: ---\n", "-c", "2", "-i", "100", "--reliable"
    )
    assert sent.exit_code == 0, sent.output
    arguments = {
        "tail": (TOPIC, "-s", url, "--from", "earliest", "-c", "2"),
        "peek": (TOPIC, "--admin-addr", broker.admin_address),
        "consume": ("-s", url, "-t", TOPIC, "-m", "s", "--start", "earliest", "-c", "2"),
    }[command]
    as_json = await alone(command, *arguments, "--output", "json")
    if command == "consume":
        arguments = (*arguments[:5], "t", *arguments[6:])
    as_yaml = await alone(command, *arguments, "--output", "yaml")
    messages = list(yaml.safe_load_all(as_yaml.stdout))
    assert [(each["offset"], each["payload"]) for each in messages] == [(0, "a: ---\n"), (1, "a: ---\n")]
    assert messages == [json.loads(line) for line in as_json.stdout.splitlines()]
