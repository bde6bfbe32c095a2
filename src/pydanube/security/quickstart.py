"""Everything a laptop needs to try security: an authority, certificates, a token key and a first admin's token."""

import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pydanube.kernel.errors import Rejected
from pydanube.security.peer_identity import certificate_uri
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.token_keys import private_signing_key, secret_signing_key
from pydanube.security.tokens import mint_token

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 365
TOKEN_DAYS: Final = 365
TRUST_DOMAIN: Final = "danube"
ISSUER: Final = "danube-auth"
KEY_ID: Final = "quickstart"
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_HOST_NAME: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
_CLOCKS_DIFFER: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Quickstart:
    """The files that were made, each readable by its owner only."""

    ca: Path
    ca_key: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path
    token_key: Path
    """Signs tokens; brokers do not need it, unless the algorithm is HS256."""
    token_check_key: Path
    """Checks tokens: the public key, or of HS256 the same secret."""
    admin_token: Path
    broker_config: Path
    """The keys `admin_tls` and `auth` of the broker's configuration."""


def quickstart(
    directory: Path,
    *,
    now_ms: int,
    names: Sequence[str] = (),
    admin: str = "admin",
    algorithm: Literal["Ed25519", "HS256"] = "Ed25519",
) -> Quickstart:
    """Make an authority, certificates for a broker and its admin, a token key, the admin's token, and the settings.

    `names` are further host names and addresses of the broker. Nothing is overwritten: a file that exists is Rejected.
    """
    now = datetime.fromtimestamp(now_ms // 1000, UTC)
    check_key = "token-key.pub.pem" if algorithm == "Ed25519" else "token-key.secret"
    sign_key = "token-key.pem" if algorithm == "Ed25519" else check_key
    made = Quickstart(
        *(
            directory / name
            for name in (
                "ca.pem",
                "ca-key.pem",
                "server.pem",
                "server-key.pem",
                "client.pem",
                "client-key.pem",
                sign_key,
                check_key,
                "admin.token",
                "auth.yml",
            )
        )
    )
    _make_directory(directory, made)
    person = Principal(PrincipalKind.USER, admin)
    authority = _Authority(now)
    server, server_key = authority.issue(
        "danube broker",
        certificate_uri(TRUST_DOMAIN, PrincipalKind.BROKER_INTERNAL, "quickstart"),
        [*LOCAL_NAMES, *names],
    )
    client, client_key = authority.issue(admin, certificate_uri(TRUST_DOMAIN, person.kind, person.name), ())
    if algorithm == "Ed25519":
        pair = Ed25519PrivateKey.generate()
        sign_bytes = pair.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        check_bytes = pair.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        signing = private_signing_key(sign_bytes, KEY_ID)
    else:
        sign_bytes = check_bytes = secrets.token_urlsafe(48).encode()
        signing = secret_signing_key(sign_bytes, KEY_ID)
    token = mint_token(signing, person, issuer=ISSUER, ttl_seconds=TOKEN_DAYS * 86_400, now_ms=now_ms)
    contents = {
        made.ca: authority.pem,
        made.ca_key: authority.key_pem,
        made.server: server,
        made.server_key: server_key,
        made.client: client,
        made.client_key: client_key,
        made.token_key: sign_bytes,
        made.token_check_key: check_bytes,
        made.admin_token: token.encode(),
        made.broker_config: _settings(made, algorithm, admin).encode(),
    }
    for path, content in contents.items():
        _write_private(path, content)
    return made


class _Authority:
    """Signs certificates of a cluster to try things with."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("danube quickstart authority")
        self._certificate = (
            self._builder(self._name, self._key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(Encoding.PEM)
        self.key_pem = _private_pem(self._key)

    def issue(self, name: str, uri: str, hosts: Sequence[str]) -> tuple[bytes, bytes]:
        """A certificate and its key, in PEM form. One with hosts may serve; all may be shown by a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH] + ([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])
        alternatives = [x509.UniformResourceIdentifier(uri), *map(_host, hosts)]
        certificate = (
            self._builder(_name(name), key.public_key(), CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(Encoding.PEM), _private_pem(key)

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - _CLOCKS_DIFFER)
            .not_valid_after(self._now + timedelta(days=days))
        )


def _make_directory(directory: Path, made: Quickstart) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Rejected(f"the directory {directory} cannot be made: {error.strerror}") from error
    for name in Quickstart.__slots__:
        path: Path = getattr(made, name)
        if path.exists():
            raise Rejected(f"{path} exists already: name another directory, or delete it if nobody needs it")


def _write_private(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
    except OSError as error:
        raise Rejected(f"{path} cannot be written: {error.strerror}") from error


def _settings(made: Quickstart, algorithm: str, admin: str) -> str:
    return f"""\
admin_tls: true
auth:
  mode: tls # mtls: every client must show a certificate, and may come without a token
  tls:
    cert_file: {_quoted(made.server)}
    key_file: {_quoted(made.server_key)}
    ca_file: {_quoted(made.ca)}
  jwt:
    issuer: {ISSUER}
    keys:
      - id: {KEY_ID}
        algorithm: {algorithm}
        file: {_quoted(made.token_check_key)}
  super_admins: [{_quoted(admin)}]
  trust_domain: {TRUST_DOMAIN}
"""


def _quoted(value: Path | str) -> str:
    """In YAML's single quotes, where only the quote itself is special."""
    text = str(value.absolute()) if isinstance(value, Path) else value
    return "'" + text.replace("'", "''") + "'"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        pass
    if not _HOST_NAME.fullmatch(text):
        raise Rejected(f"{text[:255]!r} is neither a host name in ASCII nor an address")
    return x509.DNSName(text)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
