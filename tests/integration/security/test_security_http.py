"""The metrics port of a secured broker: who reads it, by what right, and how the others are told."""

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from broker_harness.running_broker import RunningBroker, StartBroker

READ = "ReadMetrics"
PATHS = ("/metrics", "/", "/anything")


class Answer(NamedTuple):
    status: int
    fields: dict[str, str]
    body: str

    @property
    def error(self) -> str:
        name: str = json.loads(self.body)["error"]["name"]
        return name


async def get(
    broker: RunningBroker,
    context: ssl.SSLContext | None,
    path: str = "/metrics",
    *,
    token: str | None = None,
    more: tuple[str, ...] = (),
) -> Answer:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", broker.metrics_port, ssl=context, server_hostname="localhost" if context else None
    )
    lines = [f"GET {path} HTTP/1.1", "Host: localhost", *more]
    lines += [] if token is None else [f"Authorization: Bearer {token}"]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    status, *fields = head.split("\r\n")
    return Answer(int(status.split()[1]), dict(line.split(": ", 1) for line in fields), body)


@pytest.fixture
def trusting(realm: Any) -> ssl.SSLContext:
    """Of a visitor without a certificate."""
    return ssl.create_default_context(cafile=str(realm.files.ca))


@pytest.fixture
def with_certificate(realm: Any) -> ssl.SSLContext:
    """Of a visitor with the admin's certificate."""
    context = ssl.create_default_context(cafile=str(realm.files.ca))
    context.load_cert_chain(realm.files.client, realm.files.client_key)
    return context


@pytest.mark.parametrize("path", PATHS)
async def test_metrics_want_to_know_who_reads_them(
    secured: RunningBroker, trusting: ssl.SSLContext, path: str
) -> None:
    answer = await get(secured, trusting, path)
    assert (answer.status, answer.error) == (401, "CREDENTIALS_MISSING")
    assert answer.fields["WWW-Authenticate"].startswith("Bearer")
    assert "danube_" not in answer.body


@pytest.mark.parametrize(
    "more",
    [
        ("Authorization: Bearer a.b.c",),
        ("Authorization: Basic YTpi",),
        ("Authorization: Bearer a.b.c", "Authorization: Bearer a.b.c"),
        ("Authorization: Bearer \u00fc",),
    ],
)
async def test_a_bad_token_is_none(
    secured: RunningBroker, trusting: ssl.SSLContext, more: tuple[str, ...]
) -> None:
    answer = await get(secured, trusting, more=more)
    assert (answer.status, answer.error) == (401, "TOKEN_INVALID")


async def test_a_role_grants_the_metrics_of_the_whole_cluster_only(
    secured: RunningBroker, realm: Any, admin: Any, trusting: ssl.SSLContext
) -> None:
    await admin.role("scraper", READ)
    await admin.role("operator", "ManageBroker", "ManageCluster", "ManageTopic", "Lookup", "Consume")
    await admin.bind("prometheus", ["scraper"], kind="service_account")
    await admin.bind("narrow", ["scraper"], "namespace", "default")
    await admin.bind("ops", ["operator"])
    allowed = await get(secured, trusting, token=realm.token("prometheus", "service_account"))
    assert allowed.status == 200
    assert "danube_broker_topics_owned" in allowed.body
    for name in ("narrow", "ops", "stranger"):
        denied = await get(secured, trusting, token=realm.token(name))
        assert (denied.status, denied.error) == (403, "PERMISSION_DENIED"), name
        assert READ in denied.body
        assert "danube_" not in denied.body
    await admin.unbind("prometheus")
    assert (await get(secured, trusting, token=realm.token("prometheus", "service_account"))).status == 403


@pytest.mark.parametrize("path", ["/health", "/healthz", "/readyz"])
@pytest.mark.parametrize("mode", ["tls", "mtls"])
async def test_probes_are_answered_whoever_asks(
    start_broker: StartBroker, realm: Any, trusting: ssl.SSLContext, mode: str, path: str
) -> None:
    broker = await start_broker(auth=realm.auth(mode), metrics=True)
    answer = await get(broker, trusting, path)
    assert (answer.status, answer.body) == (200, "OK")


async def test_a_certificate_says_who_reads_in_mode_mtls_only(
    start_broker: StartBroker, realm: Any, trusting: ssl.SSLContext, with_certificate: ssl.SSLContext
) -> None:
    mutual = await start_broker(auth=realm.auth("mtls"), metrics=True)
    assert (await get(mutual, with_certificate)).status == 200
    assert (await get(mutual, trusting)).status == 401
    assert (await get(mutual, with_certificate, token="a.b.c")).status == 401, "the token alone counts"
    plain = await start_broker(auth=realm.auth("tls"), metrics=True)
    assert (await get(plain, with_certificate)).status == 401


async def test_the_port_speaks_tls_only(secured: RunningBroker, realm: Any) -> None:
    with pytest.raises((ConnectionError, IndexError)):
        await get(secured, None, token=realm.token("admin"))


async def test_metrics_can_be_left_to_everybody(
    start_broker: StartBroker, realm: Any, trusting: ssl.SSLContext
) -> None:
    broker = await start_broker(auth=realm.auth(anonymous_metrics=True), metrics=True)
    answer = await get(broker, trusting)
    assert (answer.status, "danube_broker_topics_owned" in answer.body) == (200, True)


async def test_requests_of_a_principal_are_limited_here_too(
    start_broker: StartBroker, realm: Any, trusting: ssl.SSLContext
) -> None:
    broker = await start_broker(auth=realm.auth(limits={"requests_per_second": 1}), metrics=True)
    answers = [await get(broker, trusting, token=realm.token("admin")) for _ in range(20)]
    refused = next(answer for answer in answers if answer.status != 200)
    assert (refused.status, refused.error) == (429, "RATE_EXCEEDED")
    assert refused.fields["Retry-After"] == "1"


async def test_connections_count_together_with_those_of_other_doors(
    start_broker: StartBroker, realm: Any, trusting: ssl.SSLContext
) -> None:
    broker = await start_broker(auth=realm.auth(limits={"connections_max": 1}), metrics=True)
    assert (await get(broker, trusting, token=realm.token("admin"))).status == 200, "and gave its place back"
    await broker.native(realm.context(), realm.token("admin"))
    answer = await get(broker, trusting, token=realm.token("admin"))
    assert (answer.status, answer.error) == (429, "CONNECTIONS_EXHAUSTED")


async def test_readers_are_written_down(
    start_broker: StartBroker, realm: Any, trusting: ssl.SSLContext, tmp_path: Path
) -> None:
    file = tmp_path / "audit.log"
    broker = await start_broker(auth=realm.auth(audit={"file": str(file)}), metrics=True)
    for token in (realm.token("admin"), realm.token("stranger"), "a.b.c"):
        await get(broker, trusting, token=token)
    records = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["outcome"], each["principal"], each["action"]) for each in records] == [
        ("allowed", "user:admin", "http:metrics"),
        ("denied", "user:stranger", "http:metrics"),
        ("refused", "", "authenticate"),
    ]
    assert all(each["peer"].startswith("127.0.0.1:") for each in records)
