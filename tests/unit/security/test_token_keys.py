import logging
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pydanube.kernel.errors import Rejected
from pydanube.security.settings import JwtSettings, SecuritySettings, TokenKey
from pydanube.security.token_keys import private_signing_key, secret_signing_key, verifying_keys


def refused(settings: JwtSettings, *words: str) -> None:
    with pytest.raises(Rejected) as caught:
        verifying_keys(settings)
    for word in words:
        assert word in caught.value.text


def key_of(algorithm, **rest) -> JwtSettings:
    return JwtSettings(keys=(TokenKey(id="k", algorithm=algorithm, **rest),))


def test_settings_without_a_key_are_refused() -> None:
    refused(JwtSettings(), "no key")


def test_two_keys_of_one_id_are_refused() -> None:
    keys = tuple(TokenKey(id="k", algorithm="HS256", secret=letter * 40) for letter in "ab")
    refused(JwtSettings(keys=keys), "two keys", "'k'")


def test_a_key_is_given_once() -> None:
    refused(key_of("HS256"), "either")
    refused(key_of("HS256", secret="s" * 40, file="f"), "either")


def test_a_public_key_is_no_secret(rsa_pair) -> None:
    refused(JwtSettings(secret_key=rsa_pair.public_pem.decode()), "cannot be the secret")
    with pytest.raises(Rejected):
        secret_signing_key(rsa_pair.public_pem)


def test_a_secret_is_no_public_key() -> None:
    refused(key_of("RS256", secret="s" * 40), "public key")


def test_a_private_key_does_not_belong_on_a_broker(tmp_path: Path, rsa_pair) -> None:
    (tmp_path / "k").write_bytes(rsa_pair.private_pem)
    refused(key_of("RS256", file=str(tmp_path / "k")), "private key")


def test_a_key_of_another_kind(tmp_path: Path, rsa_pair, ed_pair) -> None:
    (tmp_path / "r").write_bytes(rsa_pair.public_pem)
    (tmp_path / "e").write_bytes(ed_pair.public_pem)
    refused(key_of("RS256", file=str(tmp_path / "e")), "another kind")
    refused(key_of("Ed25519", file=str(tmp_path / "r")), "another kind")


def test_files_that_hold_no_key(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"nonsense")
    refused(key_of("Ed25519", file=str(tmp_path / "k")), "no public key")
    refused(key_of("Ed25519", file=str(tmp_path / "missing")), "cannot be read")
    (tmp_path / "empty").write_bytes(b"\n")
    refused(key_of("HS256", file=str(tmp_path / "empty")), "empty")


@pytest.mark.filterwarnings("ignore::Warning")
def test_a_small_rsa_key_is_too_weak(tmp_path: Path) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    (tmp_path / "k").write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    refused(key_of("RS256", file=str(tmp_path / "k")), "1024 bits")
    with pytest.raises(Rejected, match="1024 bits"):
        private_signing_key(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def test_other_private_keys_sign_nothing() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    with pytest.raises(Rejected, match="neither of RSA nor of Ed25519"):
        private_signing_key(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(Rejected):
        private_signing_key(b"nonsense")


def test_the_secret_of_a_file_is_without_the_newline(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(b"s" * 40 + b"\n")
    (key,) = verifying_keys(key_of("HS256", file=str(tmp_path / "k")))
    assert key.verify(b"text", secret_signing_key(b"s" * 40).sign(b"text"))


def test_a_short_secret_is_warned_of_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        verifying_keys(JwtSettings(secret_key="hunter2"))
    assert "7 bytes" in caplog.text
    assert "hunter2" not in caplog.text


def test_settings_do_not_show_secrets() -> None:
    settings = SecuritySettings(
        jwt=JwtSettings(secret_key="hunter2", keys=(TokenKey(id="k", algorithm="HS256", secret="hunter3"),))
    )
    for shown in (repr(settings), str(settings), repr(settings.jwt), repr(verifying_keys(settings.jwt))):
        assert "hunter" not in shown
