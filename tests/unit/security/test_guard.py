import json
import logging

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected, Status
from pydanube.protocol.http2.headers import Headers
from pydanube.security.audit import AuditLog
from pydanube.security.guard import FOREVER_MS, OPEN, Guard
from pydanube.security.permissions import CLUSTER, Permission, Scope, topic_resource
from pydanube.security.policy_guard import PolicyGuard, policy_guard
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import ANONYMOUS, Principal, PrincipalKind
from pydanube.security.rbac import Binding, Role
from pydanube.security.settings import AuditSettings, JwtSettings, Limits, SecuritySettings, TlsFiles
from pydanube.security.token_keys import secret_signing_key
from pydanube.security.tokens import mint_token

SECRET = "a secret of more than thirty-two bytes"
NOW_MS = 1_800_000_000_000
ALICE = Principal(PrincipalKind.USER, "alice")
ROOT = Principal(PrincipalKind.USER, "root")
ETL = Principal(PrincipalKind.SERVICE_ACCOUNT, "etl")
BROKER = Principal(PrincipalKind.BROKER_INTERNAL, "7")
TOPIC = topic_resource("/shop/orders")
TLS = TlsFiles(cert_file="c", key_file="k", ca_file="a")
ALICES = mint_token(
    secret_signing_key(SECRET.encode()), ALICE, issuer="danube-auth", ttl_seconds=3600, now_ms=NOW_MS
)
INTERNAL = {"x-danube-internal-broker": "broker/7"}


@pytest.fixture
def audit(clock, caplog: pytest.LogCaptureFixture) -> AuditLog:
    caplog.set_level(logging.INFO, "pydanube.audit")
    return AuditLog(AuditSettings(), clock)


def made(mode, policies, audit, clock, **settings) -> PolicyGuard:
    settings = {"jwt": JwtSettings(secret_key=SECRET)} | settings
    return policy_guard(SecuritySettings(mode=mode, tls=TLS, **settings), policies, audit, clock)


@pytest.fixture
def tls(policies: PolicyStore, audit, clock) -> PolicyGuard:
    return made("tls", policies, audit, clock)


@pytest.fixture
def mtls(policies: PolicyStore, audit, clock) -> PolicyGuard:
    return made("mtls", policies, audit, clock)


def refusal(guard: PolicyGuard, *credentials, code: ErrorCode) -> str:
    with pytest.raises(Rejected) as caught:
        guard.authenticate(*credentials)
    assert caught.value.code is code
    return caught.value.text


def records(caplog: pytest.LogCaptureFixture) -> list[dict]:
    return [json.loads(record.getMessage()) for record in caplog.records if record.name == "pydanube.audit"]


def test_without_security_everybody_is_anonymous() -> None:
    guard: Guard = OPEN
    assert guard.authenticate({"authorization": "Bearer nonsense"} | INTERNAL) == ANONYMOUS
    assert guard.admit(None) == (ANONYMOUS, FOREVER_MS)
    guard.check(ANONYMOUS, "no such call", CLUSTER)
    assert guard.quotas is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_token_says_who_is_calling(tls: PolicyGuard, scheme: str) -> None:
    assert tls.authenticate({"authorization": f"{scheme} {ALICES}"}) == ALICE
    headers = Headers("POST", "/x", {"authorization": f"{scheme} {ALICES}"}, -1)
    assert tls.authenticate(headers) == ALICE
    assert tls.authenticate(ALICES) == ALICE
    assert tls.admit(ALICES).expires_ms == NOW_MS + 3_660_000


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", f"BEARER {ALICES}", ALICES, f"Basic {ALICES}"])
def test_an_authorization_that_holds_no_token(tls: PolicyGuard, value: str) -> None:
    text = refusal(tls, {"authorization": value}, code=ErrorCode.TOKEN_INVALID)
    assert ALICES not in text


def test_two_tokens_are_none(tls: PolicyGuard) -> None:
    refusal(tls, {"authorization": f"Bearer {ALICES},Bearer {ALICES}"}, code=ErrorCode.TOKEN_INVALID)


@pytest.mark.parametrize("nothing", [None, "", {}, {"x-danube-broker-url": "http://127.0.0.1"}])
def test_who_shows_nothing_is_refused(tls: PolicyGuard, mtls: PolicyGuard, nothing) -> None:
    refusal(tls, nothing, code=ErrorCode.CREDENTIALS_MISSING)
    assert "certificate" in refusal(mtls, nothing, code=ErrorCode.CREDENTIALS_MISSING)


def test_a_token_that_nobody_can_check(policies, audit, clock) -> None:
    guard = made("tls", policies, audit, clock, jwt=None)
    refusal(guard, ALICES, code=ErrorCode.TOKENS_NOT_CONFIGURED)
    assert ErrorCode.TOKENS_NOT_CONFIGURED.status is Status.FAILED_PRECONDITION


@pytest.mark.parametrize(
    "certificate", [None, ALICE, ETL, ROOT, Principal(PrincipalKind.SERVICE_ACCOUNT, "broker/7")]
)
def test_the_header_of_brokers_counts_with_a_brokers_certificate_only(
    tls: PolicyGuard, mtls: PolicyGuard, certificate: Principal | None
) -> None:
    refusal(tls, INTERNAL, certificate, code=ErrorCode.CREDENTIALS_MISSING)
    assert tls.authenticate(INTERNAL | {"authorization": f"Bearer {ALICES}"}, certificate) == ALICE
    if certificate is not None:
        assert mtls.authenticate(INTERNAL, certificate) == certificate


def test_a_broker_says_so_and_proves_it(tls: PolicyGuard, mtls: PolicyGuard) -> None:
    for guard in (tls, mtls):
        assert guard.authenticate(INTERNAL, BROKER) == Principal(PrincipalKind.BROKER_INTERNAL, "broker/7")
        # What it forwards for a client is the client's call.
        assert guard.authenticate({"authorization": f"Bearer {ALICES}"}, BROKER) == ALICE
        refusal(guard, {}, BROKER, code=ErrorCode.CREDENTIALS_MISSING)
        refusal(guard, {"x-danube-internal-broker": ""}, BROKER, code=ErrorCode.CREDENTIALS_MISSING)


def test_a_certificate_is_an_identity_in_mode_mtls_only(tls: PolicyGuard, mtls: PolicyGuard) -> None:
    assert mtls.authenticate({}, ETL) == ETL
    assert mtls.authenticate(None, ETL) == ETL
    refusal(tls, {}, ETL, code=ErrorCode.CREDENTIALS_MISSING)


def test_a_token_counts_before_the_certificate_even_if_it_is_bad(mtls: PolicyGuard) -> None:
    assert mtls.authenticate(ALICES, ETL) == ALICE
    refusal(mtls, ALICES[:-4] + "AAAA", ETL, code=ErrorCode.TOKEN_INVALID)


async def grant(policies: PolicyStore, *permissions: str) -> None:
    await policies.put_role(Role(name="r", permissions=permissions))
    await policies.put_binding(
        Binding(
            id="b",
            principal_type="user",
            principal_name="alice",
            role_names=("r",),
            scope=Scope.NAMESPACE,
            resource_name="shop",
        )
    )


async def test_decisions_are_counted(tls: PolicyGuard, policies: PolicyStore) -> None:
    await grant(policies, "Produce")
    tls.check(ALICE, "native:publish", TOPIC)
    tls.check(ALICE, "native:publish", TOPIC)
    tls.check(ALICE, "/danube.HealthCheck/HealthCheck")
    for _ in range(3):
        with pytest.raises(Rejected):
            tls.check(ALICE, "native:ack", TOPIC)
    assert tls.allowed == {(Scope.TOPIC, Permission.PRODUCE): 2}
    assert tls.denied == {(Scope.TOPIC, Permission.CONSUME): 3}


async def test_a_new_revision_when_access_is_taken_away(tls: PolicyGuard, policies: PolicyStore) -> None:
    await grant(policies, "Produce")
    before = tls.revision
    tls.check(ALICE, "native:publish", TOPIC)
    assert tls.revision == before
    await policies.delete_role("r")
    assert tls.revision != before
    with pytest.raises(Rejected):
        tls.check(ALICE, "native:publish", TOPIC)


async def test_administrative_and_denied_calls_are_written_down(
    tls: PolicyGuard, policies: PolicyStore, caplog: pytest.LogCaptureFixture
) -> None:
    await grant(policies, "ManageTopic", "Produce")
    tls.check(ALICE, "native:publish", TOPIC, peer="127.0.0.1:5")
    tls.check(ALICE, "/danube_admin.TopicAdmin/DeleteTopic", TOPIC, peer="127.0.0.1:5")
    tls.check(ROOT, "/danube_admin.BrokerAdmin/ListBrokers", CLUSTER)
    with pytest.raises(Rejected):
        tls.check(ALICE, "native:ack", TOPIC, peer="127.0.0.1:5")
    refusal(tls, "nonsense", code=ErrorCode.TOKEN_INVALID)
    assert [
        (record["outcome"], record["principal"], record["action"], record["resource"])
        for record in records(caplog)
    ] == [
        ("allowed", "user:alice", "/danube_admin.TopicAdmin/DeleteTopic", "topic:/shop/orders"),
        ("allowed", "user:root", "/danube_admin.BrokerAdmin/ListBrokers", "cluster"),
        ("denied", "user:alice", "native:ack", "topic:/shop/orders"),
        ("refused", "", "authenticate", ""),
    ]
    deletion = records(caplog)[0]
    assert (deletion["peer"], deletion["reason"]) == ("127.0.0.1:5", "role r by namespace binding b")
    assert deletion["time"] == "2027-01-15T08:00:00.000Z"


async def test_looking_need_not_be_written_down(policies, clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pydanube.audit")
    guard = made("tls", policies, AuditLog(AuditSettings(reads=False), clock), clock)
    guard.check(ROOT, "/danube_admin.BrokerAdmin/ListBrokers", CLUSTER)
    guard.check(ROOT, "/danube_admin.ClusterAdmin/AddNode", CLUSTER)
    with pytest.raises(Rejected):
        guard.check(ALICE, "/danube_admin.BrokerAdmin/ListBrokers", CLUSTER)
    assert [record["outcome"] for record in records(caplog)] == ["allowed", "denied"]


async def test_no_credential_is_ever_written(
    policies: PolicyStore, audit, clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    guard = made("mtls", policies, audit, clock)
    stale = mint_token(secret_signing_key(SECRET.encode()), ALICE, issuer="x", ttl_seconds=1, now_ms=0)
    texts = []
    for credentials in (ALICES + "x", stale, {"authorization": f"Basic {stale}"}, {"authorization": ALICES}):
        with pytest.raises(Rejected) as caught:
            guard.authenticate(credentials, None)
        texts.append(caught.value.text)
    written = "\n".join(texts) + caplog.text
    assert SECRET not in written
    for token in (ALICES, stale):
        for piece in token.split("."):
            assert piece not in written


def test_limits_are_there_if_any_is_set(policies, audit, clock) -> None:
    assert made("tls", policies, audit, clock).quotas is None
    limited = made("tls", policies, audit, clock, limits=Limits(connections_max=1))
    assert limited.quotas is not None
    limited.quotas.connect(ALICE, 0)
    one = made("tls", policies, audit, clock, principal_limits={"etl": Limits(connections_max=1)})
    assert one.quotas is not None
