import asyncio
import ssl
import stat
from pathlib import Path

import msgspec
import pytest
import yaml
from cryptography import x509

from pydanube.kernel.errors import Rejected
from pydanube.security.audit import AuditLog
from pydanube.security.certificates import ServerTls
from pydanube.security.peer_identity import certificate_principal
from pydanube.security.permissions import CLUSTER
from pydanube.security.policy_guard import policy_guard
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.quickstart import quickstart
from pydanube.security.settings import SecuritySettings

ADMIN = Principal(PrincipalKind.USER, "admin")


def settings_of(file: Path) -> SecuritySettings:
    return msgspec.convert(yaml.safe_load(file.read_text())["auth"], SecuritySettings)


@pytest.fixture
def real_now_ms() -> int:
    """Certificates are judged by the system's clock."""
    import time

    return time.time_ns() // 1_000_000


def test_files_are_for_their_owner_only(tmp_path: Path, real_now_ms: int) -> None:
    directory = tmp_path / "security"
    quickstart(directory, now_ms=real_now_ms)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir()} == {0o600}
    assert len(list(directory.iterdir())) == 10


def test_nothing_is_overwritten(tmp_path: Path, real_now_ms: int) -> None:
    made = quickstart(tmp_path, now_ms=real_now_ms)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(Rejected, match="exists already"):
        quickstart(tmp_path, now_ms=real_now_ms)
    assert before == {file: file.read_bytes() for file in tmp_path.iterdir()}
    made.broker_config.unlink()
    with pytest.raises(Rejected, match="exists already"):
        quickstart(tmp_path, now_ms=real_now_ms)
    assert not made.broker_config.exists()


@pytest.mark.parametrize(
    "variant", [("Ed25519", "tls"), ("Ed25519", "mtls"), ("HS256", "tls"), ("HS256", "mtls")]
)
async def test_the_admin_gets_in(
    tmp_path: Path, policies: PolicyStore, clock, real_now_ms: int, variant
) -> None:
    """A broker with these settings, a client with these files, one connection over loopback."""
    algorithm, mode = variant
    clock.wall_ms = real_now_ms
    made = quickstart(tmp_path / "it's here", now_ms=real_now_ms, algorithm=algorithm)
    settings = msgspec.structs.replace(settings_of(made.broker_config), mode=mode)
    assert settings.tls is not None
    own = PolicyStore(policies._metadata, super_admins=set(settings.super_admins))
    await own.start()
    guard = policy_guard(settings, own, AuditLog(settings.audit, clock), clock)
    tls = ServerTls(settings.mode, settings.tls, clock)

    async def judge(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        certificate = certificate_principal(writer.get_extra_info("peercert"), settings.trust_domain)
        token = (await reader.readline()).decode().strip()
        try:
            caller = guard.authenticate(token, certificate)
            guard.check(caller, "/danube_admin.SecurityAdmin/CreateRole", CLUSTER)
            writer.write(str(caller).encode())
        except Rejected as error:
            writer.write(error.code.name.encode())
        writer.close()

    server = await asyncio.start_server(judge, "127.0.0.1", 0, ssl=tls.context)
    port = server.sockets[0].getsockname()[1]

    async def ask(token: str, host: str) -> str:
        context = ssl.create_default_context(cafile=made.ca)
        if mode == "mtls":
            context.load_cert_chain(made.client, made.client_key)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=host)
        writer.write(token.encode() + b"\n")
        told = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return told

    token = made.admin_token.read_text()
    for host in ("localhost", "127.0.0.1", "::1"):
        assert await ask(token, host) == "user:admin"
    assert await ask("", "localhost") == ("user:admin" if mode == "mtls" else "CREDENTIALS_MISSING")
    assert await ask(token[:-5] + "AAAAA", "localhost") == "TOKEN_INVALID"
    server.close()
    await server.wait_closed()
    await own.close()


def test_certificates_say_who_they_are_for(tmp_path: Path, real_now_ms: int) -> None:
    made = quickstart(tmp_path, now_ms=real_now_ms, names=["broker.example", "10.0.0.7"], admin="ada")
    server = x509.load_pem_x509_certificate(made.server.read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "broker.example"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1",
        "::1",
        "10.0.0.7",
    ]
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://danube/broker/quickstart"]
    client = x509.load_pem_x509_certificate(made.client.read_bytes())
    names = client.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == ["spiffe://danube/user/ada"]
    assert settings_of(made.broker_config).super_admins == ("ada",)
    authority = x509.load_pem_x509_certificate(made.ca.read_bytes())
    for certificate in (server, client):
        certificate.verify_directly_issued_by(authority)


@pytest.mark.parametrize("name", ["ä.example", "", "a b", "a\n", "https://a"])
def test_a_name_that_no_certificate_can_hold(tmp_path: Path, real_now_ms: int, name: str) -> None:
    with pytest.raises(Rejected, match="neither a host name"):
        quickstart(tmp_path, now_ms=real_now_ms, names=[name])
    assert list(tmp_path.iterdir()) == []


def test_a_broker_does_not_hold_the_key_that_makes_tokens(tmp_path: Path, real_now_ms: int) -> None:
    made = quickstart(tmp_path, now_ms=real_now_ms)
    text = made.broker_config.read_text()
    assert str(made.token_key) not in text
    assert str(made.ca_key) not in text
    assert made.admin_token.read_text() not in text
