import msgspec
import pytest

from pydanube.security.settings import SecuritySettings


def read(**keys: object) -> SecuritySettings:
    return msgspec.convert(keys, SecuritySettings)


FILES = {"cert_file": "c", "key_file": "k"}


def test_nothing_is_secured_by_default() -> None:
    settings = read()
    assert (settings.mode, settings.super_admins, settings.jwt) == ("none", (), None)


@pytest.mark.parametrize("mode", ["tls", "mtls"])
def test_encryption_needs_files(mode: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="cert_file"):
        read(mode=mode)


def test_certificates_of_clients_need_an_authority() -> None:
    with pytest.raises(msgspec.ValidationError, match="ca_file"):
        read(mode="mtls", tls=FILES)
    assert read(mode="tls", tls=FILES).tls is not None
    assert read(mode="mtls", tls=FILES | {"ca_file": "a"}).mode == "mtls"


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"mode": "TLS"}, "mode"),
        ({"super_admin": ["root"]}, "super_admin"),
        ({"super_admins": [""]}, r"super_admins\[0\]"),
        ({"jwt": {"keys": [{"id": "k", "algorithm": "none"}]}}, r"jwt\.keys\[0\]\.algorithm"),
        ({"jwt": {"keys": [{"id": "k", "algorithm": "HS256"}] * 17}}, r"jwt\.keys"),
        ({"limits": {"connections_max": -1}}, r"limits\.connections_max"),
        ({"audit": {"files_max": 1}}, r"audit\.files_max"),
    ],
)
def test_a_wrong_key_is_named(keys: dict[str, object], text: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=text):
        read(**keys)
