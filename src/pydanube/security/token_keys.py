"""Keys that tokens are checked and signed with. A key belongs to one algorithm, whatever a token says."""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from jwt.algorithms import HMACAlgorithm, OKPAlgorithm, RSAAlgorithm
from jwt.exceptions import InvalidKeyError

from pydanube.kernel.errors import Rejected
from pydanube.security.settings import Algorithm, JwtSettings, TokenKey

log = logging.getLogger("pydanube.security")

SECRET_BYTES_GOOD: Final = 32
"""An HS256 secret shorter than this can be guessed from a token; it is accepted with a warning."""
RSA_BITS_MIN: Final = 2048
KEY_FILE_BYTES_MAX: Final = 64 * 1024

# RFC 9864 calls it Ed25519, most libraries still write EdDSA.
HEADER_NAMES: Final[dict[Algorithm, tuple[str, ...]]] = {
    "HS256": ("HS256",),
    "RS256": ("RS256",),
    "Ed25519": ("EdDSA", "Ed25519"),
}

_HMAC: Final = HMACAlgorithm(HMACAlgorithm.SHA256)
_RSA: Final = RSAAlgorithm(RSAAlgorithm.SHA256)
_OKP: Final = OKPAlgorithm()


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    id: str | None
    """None: of tokens that name no key."""
    algorithm: Algorithm
    verify: Callable[[bytes, bytes], bool] = field(repr=False)
    """Whether the second argument is the first one's signature."""


@dataclass(frozen=True, slots=True)
class SigningKey:
    id: str | None
    algorithm: Algorithm
    sign: Callable[[bytes], bytes] = field(repr=False)


def verifying_keys(settings: JwtSettings) -> tuple[VerifyingKey, ...]:
    """Read all keys of the settings; Rejected names the one that cannot be used, and never shows it."""
    keys = [_verifying_key(key) for key in settings.keys]
    if settings.secret_key is not None:
        keys.append(_hmac_key(None, "auth.jwt.secret_key", settings.secret_key.encode()))
    if not keys:
        raise Rejected("auth.jwt holds no key: set secret_key or keys")
    ids = [key.id for key in keys]
    for twice in {key_id for key_id in ids if ids.count(key_id) > 1}:
        raise Rejected(f"auth.jwt.keys has two keys with the id {twice!r}: give each its own")
    return tuple(keys)


def key_files_seen(settings: JwtSettings) -> tuple[object, ...]:
    """What tells that a key file was changed or replaced."""
    return tuple(_seen(key.file) for key in settings.keys if key.file is not None)


def _seen(file: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def secret_signing_key(secret: bytes, key_id: str | None = None) -> SigningKey:
    """Signs with HS256."""
    prepared = _prepared_secret("the secret key", secret)
    return SigningKey(key_id, "HS256", lambda text: _HMAC.sign(text, prepared))


def private_signing_key(pem: bytes, key_id: str | None = None) -> SigningKey:
    """Signs with RS256 or Ed25519, as the private key is of."""
    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise Rejected("this is no private key in PEM form without a password") from error
    if isinstance(key, Ed25519PrivateKey):
        return SigningKey(key_id, "Ed25519", key.sign)
    if isinstance(key, RSAPrivateKey):
        _check_rsa_size("the private key", key.key_size)
        return SigningKey(key_id, "RS256", lambda text: _RSA.sign(text, key))
    raise Rejected("this private key is neither of RSA nor of Ed25519: tokens cannot be signed with it")


def _verifying_key(key: TokenKey) -> VerifyingKey:
    where = f"auth.jwt.keys, key {key.id!r}"
    if (key.secret is None) == (key.file is None):
        raise Rejected(f"{where}: set either secret or file")
    if key.algorithm == "HS256":
        if key.secret is not None:
            return _hmac_key(key.id, where, key.secret.encode())
        # An editor's newline is not part of the secret.
        return _hmac_key(key.id, where, _read(where, key.file).removesuffix(b"\n"))
    if key.file is None:
        raise Rejected(f"{where}: {key.algorithm} needs the file of a public key, not a secret")
    pem = _read(where, key.file)
    if b"PRIVATE KEY" in pem:
        raise Rejected(
            f"{where}: {key.file} holds a private key; a broker needs, and should have, the public one"
        )
    try:
        public = load_pem_public_key(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Rejected(f"{where}: {key.file} holds no public key in PEM form") from error
    if key.algorithm == "Ed25519" and isinstance(public, Ed25519PublicKey):
        return VerifyingKey(
            key.id, key.algorithm, lambda text, signature: _OKP.verify(text, public, signature)
        )
    if key.algorithm == "RS256" and isinstance(public, RSAPublicKey):
        _check_rsa_size(where, public.key_size)
        return VerifyingKey(
            key.id, key.algorithm, lambda text, signature: _RSA.verify(text, public, signature)
        )
    raise Rejected(f"{where}: {key.file} holds a key of another kind than {key.algorithm}")


def _hmac_key(key_id: str | None, where: str, secret: bytes) -> VerifyingKey:
    prepared = _prepared_secret(where, secret)
    if len(prepared) < SECRET_BYTES_GOOD:
        log.warning(
            "%s has %d bytes: it can be guessed from any token, take %d random ones",
            where,
            len(prepared),
            SECRET_BYTES_GOOD,
        )
    return VerifyingKey(key_id, "HS256", lambda text, signature: _HMAC.verify(text, prepared, signature))


def _prepared_secret(where: str, secret: bytes) -> bytes:
    try:
        return _HMAC.prepare_key(secret)
    except InvalidKeyError as error:
        # A public key as secret: everybody could sign.
        raise Rejected(
            f"{where} cannot be the secret of HS256: it is empty or a key in another form"
        ) from error


def _check_rsa_size(where: str, bits: int) -> None:
    if bits < RSA_BITS_MIN:
        raise Rejected(f"{where}: an RSA key of {bits} bits is too weak, {RSA_BITS_MIN} at least")


def _read(where: str, file: str | None) -> bytes:
    assert file is not None
    try:
        with Path(file).open("rb") as opened:
            return opened.read(KEY_FILE_BYTES_MAX)
    except OSError as error:
        raise Rejected(f"{where}: {file} cannot be read: {error.strerror}") from error
