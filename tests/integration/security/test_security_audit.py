"""What a secured broker writes down, and what it never does."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from broker_harness.running_broker import StartBroker
from broker_harness.wire_client import Status, refused
from click.testing import CliRunner

from pydanube.cli.config import config as config_command
from pydanube.protocol.native import frames

TOPIC = "/default/orders"
SECRET = "an-hs256-secret-of-this-test-only"


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


async def test_every_administrative_and_every_denied_action_is_recorded(
    start_broker: StartBroker, realm: Any, make_admin: Any, tmp_path: Path
) -> None:
    file = tmp_path / "audit" / "audit.jsonl"
    broker = await start_broker(auth=realm.auth(audit={"file": str(file)}), admin_tls=True)
    admin = make_admin(broker)
    await admin.role("reader", "Consume")
    await admin.bind("bob", ["reader"], "topic", TOPIC)
    bob = broker.client(realm.credentials(realm.token("bob")))
    with refused(Status.PERMISSION_DENIED):
        await bob.create_producer(TOPIC)
    native = await broker.native(realm.context(), realm.token("bob"))
    native.send(frames.OPEN_PRODUCER, b"", channel=1, request=77)
    with pytest.raises(Exception, match="PERMISSION_DENIED"):
        await native.answer(77)
    with refused(Status.UNAUTHENTICATED):
        await broker.client(realm.credentials()).lookup(TOPIC)
    found = [
        (each["principal"], each["action"].rpartition("/")[2], each["resource"], each["outcome"])
        for each in records(file)
    ]
    assert found == [
        ("user:admin", "CreateRole", "cluster", "allowed"),
        ("user:admin", "CreateBinding", "cluster", "allowed"),
        ("user:bob", "CreateProducer", f"topic:{TOPIC}", "denied"),
        ("user:bob", "native:open_producer", "topic:/", "denied"),
        ("", "authenticate", "", "refused"),
    ]
    assert all(each["peer"].startswith("127.0.0.1:") for each in records(file))
    assert file.stat().st_mode & 0o777 == 0o600


async def test_no_secret_is_ever_logged(
    start_broker: StartBroker, realm: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "pydanube")
    auth = realm.auth()
    auth["jwt"]["secret_key"] = SECRET
    broker = await start_broker(auth=auth, admin_tls=True)
    good, denied = realm.token("admin"), realm.token("stranger")
    forged = good[:-10] + "AAAAAAAAAA"
    for token in (good, denied, forged, "Bearer-of-bad-news"):
        client = broker.client(realm.credentials(token))
        try:
            await client.create_producer(TOPIC)
        except Exception as error:
            caplog.records.append(logging.makeLogRecord({"msg": str(error)}))
        connection = await broker.dial(realm.context())
        connection.write(frames.PREFACE)
        await connection.close()
    await broker.stop()
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "stranger" in text, "the log was looked at"
    key = realm.files.token_check_key.read_text().splitlines()[1]
    for secret in (good, denied, forged, good.split(".")[2], SECRET, key):
        assert secret not in text


def test_a_configuration_is_shown_without_its_secrets(realm: Any, tmp_path: Path) -> None:
    auth = realm.auth()
    auth["jwt"]["secret_key"] = SECRET
    file = tmp_path / "danube.yml"
    file.write_text(yaml.safe_dump({"auth": auth}))
    shown = CliRunner().invoke(config_command, ["show", "--config-file", str(file)])
    assert shown.exit_code == 0, shown.output
    assert SECRET not in shown.output
    assert "super_admins" in shown.output
