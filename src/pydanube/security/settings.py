"""Settings of security: the block `auth` of the configuration file. None of them shows a secret when printed."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=0)]
Algorithm = Literal["HS256", "RS256", "Ed25519"]
Mode = Literal["none", "tls", "mtls"]

KEYS_MAX = 16
"""Token keys valid at once. A token that names none is tried with each of its algorithm."""


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A block of the file: unknown keys are refused."""


class TlsFiles(Section, frozen=True):
    """Files in PEM form, read again when they change."""

    cert_file: Text
    """The certificate, followed by those between it and the authority."""
    key_file: Text
    """The certificate's private key."""
    ca_file: Text | None = None
    """The authority that has signed the certificates of clients and brokers; required in mode mtls."""


class TokenKey(Section, frozen=True):
    """A key that tokens are checked with, for one algorithm only; tokens name it in their header `kid`."""

    id: Text
    """What tokens name it by."""
    algorithm: Algorithm
    """Tokens signed by another one are refused."""
    secret: Text | None = None
    """HS256: the secret itself."""
    file: Text | None = None
    """HS256: file of the secret. RS256, Ed25519: file of the public key, PEM."""

    def __repr__(self) -> str:
        return f"TokenKey(id={self.id!r}, algorithm={self.algorithm!r})"


class JwtSettings(Section, frozen=True):
    secret_key: Text | None = None
    """Secret of HS256 tokens that name no key."""
    issuer: Text | None = None
    """Who must have made a token; null: anybody with a key."""
    audience: Text | None = None
    """Whom a token must be for; null: tokens made for somebody in particular are refused."""
    expiration_time: Count | None = None
    """Seconds, for tools that make tokens; the broker goes by each token's own end."""
    keys: Annotated[tuple[TokenKey, ...], Meta(max_length=KEYS_MAX)] = ()

    def __repr__(self) -> str:
        return f"JwtSettings(issuer={self.issuer!r}, audience={self.audience!r}, keys={self.keys!r})"


class Limits(Section, frozen=True):
    """Of one principal on one broker; 0: unlimited."""

    connections_max: Count = 0
    """Connections at a time."""
    requests_per_second: Count = 0
    """Requests of any kind."""
    publish_bytes_per_second: Count = 0
    """Bytes of messages."""


class AuditSettings(Section, frozen=True):
    file: Text | None = None
    """Null: the audit log goes where the broker's log goes."""
    file_mb_max: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Size at which a new file is begun."""
    files_max: Annotated[int, Meta(ge=2, le=100)] = 10
    """The file and the older ones beside it; the oldest is deleted."""
    reads: bool = True
    """Also write down administrative calls that only look; denied ones always are."""


class SecuritySettings(Section, frozen=True):
    """`none`: no encryption, everybody may do everything. `tls`: callers show a token. `mtls`: or a certificate."""

    mode: Mode = "none"
    """How the ports are protected."""
    tls: TlsFiles | None = None
    """Required in the modes tls and mtls."""
    jwt: JwtSettings | None = None
    """How tokens are checked; null: none is accepted."""
    super_admins: tuple[Text, ...] = ()
    """Names of principals that may do everything."""
    trust_domain: Text = "danube"
    """Certificates with the URI spiffe://{trust_domain}/{kind}/{name} say kind and name of their holder."""
    limits: Limits = Limits()
    principal_limits: dict[Text, Limits] = {}
    """Instead of `limits`, by the principal's name."""
    audit: AuditSettings = AuditSettings()
    anonymous_metrics: bool = False
    """Modes tls and mtls: let everybody who reaches the metrics port read it, without a token or certificate."""

    def __post_init__(self) -> None:
        if self.mode != "none" and self.tls is None:
            raise ValueError(f"mode {self.mode} needs tls.cert_file and tls.key_file")
        if self.mode == "mtls" and self.tls is not None and self.tls.ca_file is None:
            raise ValueError("mode mtls needs tls.ca_file, the authority of the clients' certificates")
