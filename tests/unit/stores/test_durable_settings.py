"""storage.durable: what is refused and why, and that secrets stay secret."""

import sys
from pathlib import Path

import msgspec
import pytest
from rich.pretty import pretty_repr

from pydanube.kernel.errors import Rejected
from pydanube.stores.directory import DirectoryStore
from pydanube.stores.settings import Backend, DurableSettings, cloud_root, open_store, problems

ACCOUNT_KEY = "c2VjcmV0LWFjY291bnQta2V5"


def settings_of(backend: str, **values: object) -> DurableSettings:
    return msgspec.convert({"backend": backend, "root": "bucket/prefix", **values}, DurableSettings)


@pytest.mark.parametrize(
    ("mode", "settings"),
    [
        ("local", settings_of("fs", root="/data")),
        ("local", DurableSettings()),
        ("shared_fs", settings_of("fs", root="/mnt/shared")),
        ("object_store", settings_of("s3")),
        (
            "object_store",
            settings_of("s3", access_key="a", secret_key="b", session_token="c", role_arn="arn"),
        ),
        ("object_store", settings_of("s3", profile="p", role_arn="arn", region="eu-west-1")),
        ("object_store", settings_of("s3", anonymous=True, endpoint="http://127.0.0.1:9000")),
        ("object_store", settings_of("gcs", project="p", credentials_json='{"type": "service_account"}')),
        ("object_store", settings_of("gcs", credentials_path="/etc/key.json")),
        ("object_store", settings_of("azblob", account_name="n", account_key=ACCOUNT_KEY)),
    ],
)
def test_settings_that_are_right(mode: str, settings: DurableSettings) -> None:
    assert problems(settings, mode) == []


@pytest.mark.parametrize(
    ("mode", "values", "key", "text"),
    [
        ("shared_fs", {"backend": "s3"}, "backend", "s3 needs storage.mode object_store"),
        ("object_store", {"backend": "fs"}, "backend", "needs s3, gcs or azblob"),
        ("shared_fs", {"backend": "fs", "root": None}, "root", "a directory all brokers see"),
        ("shared_fs", {"backend": "fs", "root": "s3://bucket"}, "root", "is a directory with backend fs"),
        ("object_store", {"root": None}, "root", "is required"),
        ("object_store", {"root": "gs://bucket"}, "root", "begins with gs://, which is not s3"),
        ("object_store", {"root": "s3:///prefix"}, "root", "is no name of a bucket"),
        ("object_store", {"root": "bucket/a/../b"}, "root", "has an empty part"),
        ("object_store", {"access_key": "a"}, "secret_key", "is required with access_key"),
        ("object_store", {"secret_key": "a"}, "access_key", "is required with secret_key"),
        ("object_store", {"session_token": "a"}, "session_token", "which are not set"),
        ("object_store", {"access_key": "a", "secret_key": "b", "profile": "p"}, "profile", "two identities"),
        ("object_store", {"anonymous": True, "profile": "p"}, "profile", "has no effect with anonymous"),
        ("object_store", {"credentials_path": "/k"}, "credentials_path", "has no effect with backend s3"),
        ("object_store", {"account_key": ACCOUNT_KEY}, "account_key", "has no effect with backend s3"),
        ("object_store", {"backend": "gcs", "region": "r"}, "region", "has no effect with backend gcs"),
        ("object_store", {"backend": "gcs", "anonymous": True}, "anonymous", "no effect with backend gcs"),
        ("object_store", {"backend": "gcs", "credentials_json": "[]"}, "credentials_json", "is not the JSON"),
        (
            "object_store",
            {"backend": "gcs", "credentials_json": "{}", "credentials_path": "/k"},
            "credentials_path",
            "two identities",
        ),
        ("object_store", {"backend": "azblob", "account_key": ACCOUNT_KEY}, "account_name", "is required"),
        (
            "object_store",
            {"backend": "azblob", "account_name": "n", "account_key": "no base64!"},
            "account_key",
            "is not Base64",
        ),
        ("shared_fs", {"backend": "fs", "root": "/m", "max_retries": 5}, "max_retries", "no effect with"),
        ("object_store", {"endpoint": "127.0.0.1:9000"}, "endpoint", "must be http://host:port"),
        ("object_store", {"endpoint": "http://host:port"}, "endpoint", "is no URL"),
        ("object_store", {"endpoint": "http://u:p@host"}, "endpoint", "neither credentials nor a query"),
    ],
)
def test_settings_that_are_wrong(mode: str, values: dict[str, object], key: str, text: str) -> None:
    found = problems(settings_of(str(values.pop("backend", "s3")), **values), mode)
    assert [name for name, _ in found] == [key]
    assert text in found[0][1]


@pytest.mark.parametrize(
    "values", [{"acces_key": "a"}, {"upload_part_mb": 4}, {"max_retries": 11}, {"backend": "ftp"}]
)
def test_unknown_keys_and_values_out_of_range(values: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(values, DurableSettings)


@pytest.mark.parametrize(
    ("backend", "root", "container", "prefix"),
    [
        ("s3", "s3://bucket/a/b/", "bucket", "a/b"),
        ("s3", "bucket", "bucket", ""),
        ("gcs", "gs://bucket/a", "bucket", "a"),
        ("azblob", "my-container/danube", "my-container", "danube"),
        ("azblob", "azblob://my-container/danube", "my-container", "danube"),
        ("azblob", "az://my-container", "my-container", ""),
    ],
)
def test_roots(backend: str, root: str, container: str, prefix: str) -> None:
    taken_apart = cloud_root(settings_of(backend, root=root))
    assert (taken_apart.container, taken_apart.prefix) == (container, prefix)


SECRETS = {
    "access_key": "AKIAVERYSECRET",
    "secret_key": "very-secret-key",
    "session_token": "very-secret-token",
    "credentials_json": '{"private_key": "very-secret-json"}',
    "account_key": "dmVyeS1zZWNyZXQ=",
}


def test_secrets_are_not_shown() -> None:
    settings = DurableSettings(backend=Backend.S3, root="bucket", **SECRETS)  # type: ignore[arg-type]
    for shown in (repr(settings), str(settings), f"{settings}", pretty_repr(settings), repr([settings])):
        assert "bucket" in shown
        assert not [secret for secret in SECRETS.values() if secret in shown]


@pytest.mark.parametrize(
    "settings",
    [
        settings_of("s3", access_key=SECRETS["access_key"], secret_key=SECRETS["secret_key"]),
        settings_of("azblob", account_name="name", account_key=SECRETS["account_key"]),
    ],
    ids=["s3", "azblob"],
)
def test_an_open_store_does_not_show_secrets_either(settings: DurableSettings) -> None:
    store = open_store(settings)
    assert "bucket/prefix" in repr(store)
    for shown in (repr(store), store.place("a"), repr(vars(store))):
        assert not [secret for secret in SECRETS.values() if secret in shown]


async def test_the_file_system_is_opened_as_a_directory(tmp_path: Path) -> None:
    store = open_store(settings_of("fs", root=str(tmp_path)))
    assert isinstance(store, DirectoryStore)
    await store.close()
    with pytest.raises(Rejected, match=r"storage\.durable\.root"):
        open_store(DurableSettings())


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(Rejected, match=r"storage\.durable\.profile: install pydanube\[aws\]"):
        open_store(settings_of("s3", profile="p"))
    with pytest.raises(Rejected, match=r"storage\.durable\.role_arn: install pydanube\[aws\]"):
        open_store(settings_of("s3", role_arn="arn:aws:iam::1:role/r"))
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(Rejected, match=r"storage\.durable\.backend gcs: install pydanube\[cloud\]"):
        open_store(settings_of("gcs"))


def test_what_the_library_refuses_is_said_without_secrets() -> None:
    with pytest.raises(Rejected, match=r"storage\.durable: .*service account") as error:
        open_store(settings_of("gcs", credentials_json=SECRETS["credentials_json"]))
    assert "very-secret" not in error.value.text
    with pytest.raises(Rejected, match=r"/no/such/key\.json"):
        open_store(settings_of("gcs", credentials_path="/no/such/key.json"))
