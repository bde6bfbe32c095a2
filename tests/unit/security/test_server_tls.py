"""Handshakes in memory, and one server on loopback: what clients see before and after the files change."""

import asyncio
import logging
import os
import ssl
import time
from contextlib import suppress
from pathlib import Path

import pytest
import trustme

from pydanube.kernel.errors import Rejected
from pydanube.security.certificates import ServerTls
from pydanube.security.peer_identity import certificate_principal
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.settings import TlsFiles


class SystemClock:
    """The one OpenSSL goes by."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


CLOCK = SystemClock()


class Files:
    """A broker's files, rewritten as an operator or a tool would."""

    def __init__(self, directory: Path, authority: trustme.CA) -> None:
        self.settings = TlsFiles(
            cert_file=str(directory / "cert.pem"),
            key_file=str(directory / "key.pem"),
            ca_file=str(directory / "ca.pem"),
        )
        self._directory = directory
        self._renames = 0
        self.put("ca.pem", authority.cert_pem.bytes())
        self.serve(authority)

    def serve(self, authority: trustme.CA, *, key: bool = True) -> trustme.LeafCert:
        leaf = authority.issue_cert("localhost", "127.0.0.1")
        self.put("cert.pem", b"".join(pem.bytes() for pem in leaf.cert_chain_pems))
        if key:
            self.put("key.pem", leaf.private_key_pem.bytes())
        return leaf

    def put(self, name: str, content: bytes) -> None:
        self._renames += 1
        fresh = self._directory / f"{name}.{self._renames}"
        fresh.write_bytes(content)
        os.replace(fresh, self._directory / name)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Files:
    return Files(tmp_path, authority)


def client_context(authority: trustme.CA | None, alpn: str = "h2") -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols([alpn])
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        authority.configure_trust(context)
    return context


def shake_hands(
    server: ssl.SSLContext,
    client: ssl.SSLContext,
    *,
    name: str | None = "localhost",
    session: ssl.SSLSession | None = None,
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both ends of a connection, without a socket."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name, session=session),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    unfinished = list(ends)
    for _ in range(10):
        for end in unfinished[:]:
            try:
                end.do_handshake()
                unfinished.remove(end)
            except ssl.SSLWantReadError:
                continue
    assert not unfinished
    # With TLS 1.3 a client is done before the server has judged its certificate: read, and be told.
    with suppress(ssl.SSLWantReadError):
        ends[0].read(1)
    return ends


def shown(
    server: ssl.SSLContext, client: ssl.SSLContext | None = None, name: str | None = "localhost"
) -> bytes | None:
    """The certificate the server shows to a client that trusts everybody."""
    return shake_hands(server, client or client_context(None), name=name)[0].getpeercert(binary_form=True)


def test_new_connections_get_the_new_certificate(files: Files, authority: trustme.CA) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    before = shown(tls.context)
    assert not tls.reload_if_changed()
    assert shown(tls.context) == before
    files.serve(authority)
    assert shown(tls.context) == before
    assert tls.reload_if_changed()
    assert shown(tls.context) not in (None, before)
    assert not tls.reload_if_changed()
    assert tls.reloads_total == 1


def test_clients_that_name_no_host_get_it_too(files: Files, authority: trustme.CA) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    before = shown(tls.context, name=None)
    files.serve(authority)
    tls.reload_if_changed()
    assert shown(tls.context, name=None) != before
    assert shown(tls.context, name=None) == shown(tls.context)


def test_a_running_connection_is_left_alone(files: Files, authority: trustme.CA) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    client, server = shake_hands(tls.context, client_context(authority))
    files.serve(authority)
    tls.reload_if_changed()
    server.write(b"still here")
    assert client.version() == "TLSv1.3"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda files, authority: files.put("cert.pem", b""),
        lambda files, authority: files.put("cert.pem", b"nonsense"),
        lambda files, authority: files.put("key.pem", b"nonsense"),
        lambda files, authority: files.put("ca.pem", b"nonsense"),
        # Half of a renewal: the key has not come yet.
        lambda files, authority: files.serve(authority, key=False),
        lambda files, authority: os.unlink(files.settings.key_file),
    ],
)
def test_files_that_do_not_fit_change_nothing(
    files: Files, authority: trustme.CA, caplog: pytest.LogCaptureFixture, spoil
) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    before = shown(tls.context)
    spoil(files, authority)
    with caplog.at_level(logging.ERROR):
        assert not tls.reload_if_changed()
        assert not tls.reload_if_changed()
    assert shown(tls.context) == before
    assert tls.failures_total == 2
    assert len(caplog.records) == 1
    assert "stays" in caplog.text
    assert "PRIVATE" not in caplog.text
    files.put("ca.pem", authority.cert_pem.bytes())
    files.serve(authority)
    assert tls.reload_if_changed()
    assert shown(tls.context) != before


def test_the_end_of_the_certificate_is_known(files: Files, authority: trustme.CA) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    assert tls.not_after_ms > 1_800_000_000_000


@pytest.mark.parametrize("missing", ["cert_file", "key_file", "ca_file"])
def test_a_missing_file_is_refused_at_the_start(files: Files, missing: str) -> None:
    os.unlink(getattr(files.settings, missing))
    with pytest.raises(Rejected, match=r"auth\.tls"):
        ServerTls("tls", files.settings, CLOCK)


def test_mode_mtls_needs_an_authority(files: Files) -> None:
    settings = TlsFiles(cert_file=files.settings.cert_file, key_file=files.settings.key_file)
    with pytest.raises(Rejected, match="ca_file"):
        ServerTls("mtls", settings, CLOCK)
    assert shown(ServerTls("tls", settings, CLOCK).context) is not None


@pytest.mark.parametrize("alpn", ["h2", "danube/1"])
def test_the_protocol_is_agreed_upon(files: Files, authority: trustme.CA, alpn: str) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    client, server = shake_hands(tls.context, client_context(authority, alpn))
    assert client.selected_alpn_protocol() == server.selected_alpn_protocol() == alpn


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_of_tls_are_refused(files: Files) -> None:
    tls = ServerTls("tls", files.settings, CLOCK)
    for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
        old = client_context(None)
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = version
        with pytest.raises(ssl.SSLError):
            shake_hands(tls.context, old)
    twelve = client_context(None)
    twelve.maximum_version = ssl.TLSVersion.TLSv1_2
    assert shake_hands(tls.context, twelve)[0].version() == "TLSv1.2"


def with_certificate(context: ssl.SSLContext, authority: trustme.CA, name: str = "etl") -> ssl.SSLContext:
    authority.issue_cert(f"{name}@example.org", common_name=name).configure_cert(context)
    return context


def principal(server: ssl.SSLObject) -> Principal | None:
    return certificate_principal(server.getpeercert(), "danube")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_clients_show_certificates_of_our_authority(files: Files, authority: trustme.CA, version) -> None:
    stranger = trustme.CA()
    for mode, required in (("tls", False), ("mtls", True)):
        tls = ServerTls(mode, files.settings, CLOCK)
        known = with_certificate(client_context(authority), authority)
        without = client_context(authority)
        foreign = with_certificate(client_context(authority), stranger)
        for context in (known, without, foreign):
            context.maximum_version = version
        assert principal(shake_hands(tls.context, known)[1]) == Principal(
            PrincipalKind.SERVICE_ACCOUNT, "etl"
        )
        if required:
            with pytest.raises(ssl.SSLError):
                shake_hands(tls.context, without)
        else:
            assert principal(shake_hands(tls.context, without)[1]) is None
        with pytest.raises(ssl.SSLError):
            shake_hands(tls.context, foreign)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_an_authority_that_is_taken_away_counts_no_more(files: Files, authority: trustme.CA, version) -> None:
    tls = ServerTls("mtls", files.settings, CLOCK)
    context = with_certificate(client_context(authority), authority)
    context.maximum_version = version
    first, _ = shake_hands(tls.context, context)
    _, resumed = shake_hands(tls.context, context, session=first.session)
    assert resumed.session_reused is (version is ssl.TLSVersion.TLSv1_2)
    other = trustme.CA()
    files.put("ca.pem", other.cert_pem.bytes())
    assert tls.reload_if_changed()
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.context, context)
    # Nor may the earlier session be taken up again without showing a certificate.
    with pytest.raises(ssl.SSLError):
        shake_hands(tls.context, context, session=first.session)
    welcome = with_certificate(client_context(authority), other)
    welcome.maximum_version = version
    assert principal(shake_hands(tls.context, welcome)[1]) is not None


def test_a_key_with_a_password_asks_nobody(files: Files) -> None:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(Path(files.settings.key_file).read_bytes(), None)
    files.put("key.pem", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"x")))
    with pytest.raises(Rejected, match="password"):
        ServerTls("tls", files.settings, CLOCK)


async def test_a_listening_server_changes_its_certificate(files: Files, authority: trustme.CA) -> None:
    """Real sockets: the server keeps listening, connections that are open stay open."""
    tls = ServerTls("mtls", files.settings, CLOCK)
    callers: list[Principal | None] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        callers.append(certificate_principal(writer.get_extra_info("peercert"), "danube"))
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls.context)
    port = server.sockets[0].getsockname()[1]
    context = with_certificate(client_context(authority), authority)

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        writer.write(b"hello\n")
        return await reader.readline()

    old = await connect()
    assert await answer(*old) == b"hello\n"
    files.serve(authority)
    assert tls.reload_if_changed()
    new = await connect()
    assert await answer(*new) == await answer(*old) == b"hello\n"
    seen = [writer.get_extra_info("ssl_object").getpeercert(binary_form=True) for _, writer in (old, new)]
    assert seen[0] != seen[1]
    assert callers == [Principal(PrincipalKind.SERVICE_ACCOUNT, "etl")] * 2
    for _, writer in (old, new):
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()
