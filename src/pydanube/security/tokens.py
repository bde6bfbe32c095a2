"""JSON web tokens: checked before they are believed, remembered for a moment, made offline.

Nothing of a token is read but size, shape and the header before its signature is found good. The header only chooses
among our keys: which algorithm a key is used with is ours to say, so `none` and a public key taken for a secret get
nowhere. Error texts quote claims of well-signed tokens only, and never the token.
"""

import logging
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import msgspec

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected
from pydanube.security.principals import Principal, Verified, claimed_principal
from pydanube.security.settings import JwtSettings
from pydanube.security.token_keys import (
    HEADER_NAMES,
    SigningKey,
    VerifyingKey,
    key_files_seen,
    verifying_keys,
)

log = logging.getLogger("pydanube.security")

TOKEN_BYTES_MAX: Final = 8 * 1024
LEEWAY_MS: Final = 60_000
"""How far the clocks of broker and issuer may differ."""
REMEMBERED_MS_MAX: Final = 30_000
REMEMBERED_MAX: Final = 10_000
TTL_SECONDS_MAX: Final = 100 * 366 * 24 * 60 * 60

_SHAPE: Final = re.compile(r"([\w-]+)\.([\w-]+)\.([\w-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Remembered:
    verified: Verified
    forget_at_ms: int  # monotonic


class _Header(msgspec.Struct, frozen=True):
    alg: str
    kid: str | None = None
    # Extensions that change what the rest means: we know none.
    crit: msgspec.Raw = msgspec.Raw()
    b64: msgspec.Raw = msgspec.Raw()


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says. Times are Unix seconds."""

    iss: str
    exp: int | float
    sub: str
    principal_type: str
    principal_name: str
    nbf: int | float | None = None
    aud: str | tuple[str, ...] | None = None


_header_decoder = msgspec.json.Decoder(_Header)
_claims_decoder = msgspec.json.Decoder(Claims)


class TokenVerifier:
    """Says whom a token speaks for. Good tokens are remembered by their hash, 30 s at most."""

    def __init__(self, settings: JwtSettings, clock: Clock) -> None:
        self._clock = clock
        self._remembered: dict[bytes, _Remembered] = {}
        self._files_seen: tuple[object, ...] = ()
        self.reload(settings)

    def reload_if_changed(self) -> bool:
        """Read the key files again if they changed; True if other keys count now. Call it on a timer.

        What cannot be used is logged, and the keys in use stay.
        """
        seen = key_files_seen(self._settings)
        if seen == self._files_seen:
            return False
        try:
            self.reload(self._settings)
        except Rejected as error:
            self._files_seen = seen  # said once, not at every look
            log.error("the token keys in use stay: %s", error.text)
            return False
        log.info("the token keys were read again")
        return True

    def reload(self, settings: JwtSettings) -> None:
        """Take other settings, or the same with other files; on Rejected the old ones stay."""
        seen = key_files_seen(settings)
        keys = verifying_keys(settings)
        self._settings = settings
        self._files_seen = seen
        self._keys_by_id = {key.id: key for key in keys if key.id is not None}
        self._keys = keys
        self._issuer = settings.issuer
        self._audience = settings.audience
        self._remembered.clear()

    def verify(self, token: str) -> Verified:
        """Whom the token speaks for, and until when.

        Raises:
            Rejected: TOKEN_INVALID or TOKEN_EXPIRED, with a text that says why.
        """
        _check_size(token)
        digest = sha256(token.encode()).digest()
        remembered = self._remembered.get(digest)
        if remembered is not None:
            if (
                self._clock.monotonic_ms() < remembered.forget_at_ms
                and self._clock.now_ms() <= remembered.verified.expires_ms
            ):
                return remembered.verified
            del self._remembered[digest]
        verified = self._verified(self.claims(token))
        if len(self._remembered) >= REMEMBERED_MAX:
            # The oldest first: dictionaries keep the order of insertion.
            del self._remembered[next(iter(self._remembered))]
        self._remembered[digest] = _Remembered(verified, self._clock.monotonic_ms() + REMEMBERED_MS_MAX)
        return verified

    def claims(self, token: str) -> Claims:
        """What the token says, after all checks but that of the name; nothing is remembered."""
        _check_size(token)
        match = _SHAPE.fullmatch(token)
        if match is None:
            raise _refused("it does not consist of three base64url parts")
        header = self._header(match[1])
        signed, signature = token[: match.end(2)].encode(), _decoded(match[3])
        if not any(key.verify(signed, signature) for key in self._candidates(header)):
            raise _refused("its signature does not fit")
        return self._checked(_decoded(match[2]))

    def _header(self, part: str) -> _Header:
        try:
            header = _header_decoder.decode(_decoded(part))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _refused("its header is not that of a token") from error
        if header.crit or header.b64:
            raise _refused("its header asks for extensions (crit, b64), none are supported")
        return header

    def _candidates(self, header: _Header) -> Sequence[VerifyingKey]:
        """The keys this token may be signed with: the one it names, or those of its algorithm."""
        if header.kid is not None:
            named = self._keys_by_id.get(header.kid)
            if named is None:
                raise _refused(
                    f"it is signed with the key {header.kid[:40]!r}, which is not among auth.jwt.keys"
                )
            if header.alg not in HEADER_NAMES[named.algorithm]:
                raise _refused(f"the key it names is for {named.algorithm}, not for {header.alg[:20]!r}")
            return (named,)
        candidates = [key for key in self._keys if header.alg in HEADER_NAMES[key.algorithm]]
        if not candidates:
            raise _refused(f"no key is set for its algorithm {header.alg[:20]!r}")
        return candidates

    def _checked(self, payload: bytes) -> Claims:
        """The claims of a token whose signature is good."""
        try:
            claims = _claims_decoder.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _refused(
                "its claims cannot be read: iss, exp, sub, principal_type and principal_name are required"
            ) from error
        # Compared as they are, in seconds: a number too large to multiply is only far away.
        now = self._clock.now_ms() / 1000
        leeway = LEEWAY_MS / 1000
        if claims.exp < now - leeway:
            raise Rejected(
                f"the token expired {min(now - claims.exp, 1e9):.0f} s ago: get a new one",
                ErrorCode.TOKEN_EXPIRED,
            )
        if claims.nbf is not None and claims.nbf > now + leeway:
            raise _refused("its time has not begun (nbf)")
        if self._issuer is not None and claims.iss != self._issuer:
            raise _refused(f"it was issued by {claims.iss[:80]!r}, expected {self._issuer!r}")
        self._check_audience(claims.aud)
        return claims

    def _verified(self, claims: Claims) -> Verified:
        try:
            principal = claimed_principal(claims.principal_type, claims.principal_name)
        except DanubeError as error:
            raise _refused(error.text) from error
        end = min(claims.exp, self._clock.now_ms() / 1000 + TTL_SECONDS_MAX)
        return Verified(principal, int(end * 1000) + LEEWAY_MS)

    def _check_audience(self, claimed: str | tuple[str, ...] | None) -> None:
        audiences = (claimed,) if isinstance(claimed, str) else claimed
        if self._audience is None:
            if audiences is not None:
                raise _refused("it is meant for an audience (aud), and auth.jwt.audience is not set")
        elif audiences is None or self._audience not in audiences:
            raise _refused(f"it is not meant for the audience {self._audience!r} (aud)")


def mint_token(
    key: SigningKey,
    principal: Principal,
    *,
    issuer: str,
    ttl_seconds: int,
    now_ms: int,
    audience: str | None = None,
) -> str:
    """A token for the principal, signed with the key; needs no broker."""
    if not 0 < ttl_seconds <= TTL_SECONDS_MAX:
        raise Rejected(f"a token cannot be valid for {ttl_seconds} s: expected 1 to {TTL_SECONDS_MAX}")
    now = now_ms // 1000
    header = {"alg": HEADER_NAMES[key.algorithm][0], "typ": "JWT"}
    if key.id is not None:
        header["kid"] = key.id
    claims: dict[str, str | int] = {
        "iss": issuer,
        "sub": principal.name,
        "iat": now,
        "exp": now + ttl_seconds,
        "principal_type": principal.kind,
        "principal_name": principal.name,
    }
    if audience is not None:
        claims["aud"] = audience
    signed = _encoded(msgspec.json.encode(header)) + b"." + _encoded(msgspec.json.encode(claims))
    token = (signed + b"." + _encoded(key.sign(signed))).decode()
    if len(token) > TOKEN_BYTES_MAX:
        raise Rejected(
            f"the token would have {len(token)} bytes, {TOKEN_BYTES_MAX} at most: take shorter names"
        )
    return token


def _check_size(token: str) -> None:
    # isascii first: it makes characters and bytes the same number.
    if not token.isascii() or len(token) > TOKEN_BYTES_MAX:
        raise _refused(f"it is longer than {TOKEN_BYTES_MAX} bytes or not ASCII")


def _refused(why: str) -> Rejected:
    return Rejected(f"the token is not accepted: {why}", ErrorCode.TOKEN_INVALID)


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decoded(part: str) -> bytes:
    if len(part) % 4 == 1:
        raise _refused("one of its parts is cut off")
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))
