"""A secret, and tokens made with it: for tests that only want to be let in over TLS."""

import time

import grpc

from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.token_keys import secret_signing_key
from pydanube.security.tokens import mint_token

_SECRET = "a secret of the tests, long enough for HS256"

TRUSTED = {"jwt": {"secret_key": _SECRET, "issuer": "tests"}, "super_admins": ["root"]}
"""Goes into the block `auth` of a broker."""


def root_token() -> str:
    """May do everything there."""
    return mint_token(
        secret_signing_key(_SECRET.encode()),
        Principal(PrincipalKind.USER, "root"),
        issuer="tests",
        ttl_seconds=3600,
        now_ms=time.time_ns() // 1_000_000,
    )


def root_credentials(ca: bytes) -> grpc.ChannelCredentials:
    """Of a gRPC client that trusts the authority."""
    return grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(ca), grpc.access_token_call_credentials(root_token())
    )
