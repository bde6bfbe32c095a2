"""`storage.durable`: where history lies, and how to get there.

The keys are those of Danube. A key that has no effect with the chosen backend is a mistake, and said to be one:
whoever sets `credentials_path` for S3 believes that something reads it.
"""

import base64
import binascii
import re
from enum import Enum
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from pydanube.kernel.errors import Rejected
from pydanube.stores.directory import DirectoryStore
from pydanube.stores.store import DurableStore


class Backend(Enum):
    FS = "fs"
    S3 = "s3"
    GCS = "gcs"
    AZBLOB = "azblob"


Text = Annotated[str, Meta(min_length=1, max_length=4096)]
Seconds = Annotated[int, Meta(ge=1, le=600)]

SECRETS = frozenset({"access_key", "secret_key", "session_token", "credentials_json", "account_key"})


class DurableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    backend: Backend = Backend.FS
    """A directory, or a bucket of Amazon S3 and those that speak like it, Google Cloud Storage or Azure."""
    root: Text | None = None
    """A directory; or `bucket/prefix`, with or without s3://, gs://, az:// or azblob:// before it."""
    endpoint: Text | None = None
    """Another address than the provider's own: MinIO, Ceph, an emulator."""

    anonymous: bool = False
    """Ask without credentials: for a store that is protected by its network alone."""
    region: Text | None = None
    """Of the bucket; S3."""
    access_key: Text | None = None
    """S3; null: what the environment or the machine has."""
    secret_key: Text | None = None
    """Belongs to `access_key`."""
    session_token: Text | None = None
    """Of credentials that end."""
    profile: Text | None = None
    """A profile of the AWS configuration files; needs pydanube[aws]."""
    role_arn: Text | None = None
    """A role to take on, with whatever credentials there are otherwise; needs pydanube[aws]."""
    virtual_host_style: bool = False
    """The bucket in the host name instead of the path."""
    sign_payload: bool = False
    """Hash every byte sent: twice the CPU, needed only by stores that refuse unsigned payloads."""

    project: Text | None = None
    """The Google project that pays for the requests, if it is not the one of the bucket."""
    credentials_json: Annotated[str, Meta(min_length=2, max_length=65_536)] | None = None
    """A Google service account's key, the text itself."""
    credentials_path: Text | None = None
    """The same as a file."""

    account_name: Text | None = None
    """Azure's storage account."""
    account_key: Text | None = None
    """Belongs to `account_name`."""

    request_timeout_seconds: Seconds = 30
    """For one request, a part of an upload being one."""
    max_retries: Annotated[int, Meta(ge=0, le=10)] = 3
    """Of one request, within the store's library."""
    upload_part_mb: Annotated[int, Meta(ge=5, le=512)] = 8
    """Larger objects go up in parts of this size; S3 takes none below 5 MiB and no more than 10,000."""
    upload_concurrency: Annotated[int, Meta(ge=1, le=32)] = 4
    """Parts of one upload under way at once: memory is this times upload_part_mb."""

    def __repr__(self) -> str:
        return f"DurableSettings({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """What is set, secrets only as being set: both ways of showing an object end here."""
        return [
            (name, "***" if name in SECRETS else value)
            for name in self.__struct_fields__
            if (value := getattr(self, name)) != _DEFAULTS[name]
        ]


_DEFAULTS = dict(
    zip(DurableSettings.__struct_fields__, DurableSettings.__struct_defaults__, strict=True),
)
_CLOUDS = frozenset({Backend.S3, Backend.GCS, Backend.AZBLOB})
_S3 = frozenset({Backend.S3})
_GCS = frozenset({Backend.GCS})
_AZBLOB = frozenset({Backend.AZBLOB})
_BACKENDS_OF = {
    **dict.fromkeys(
        (
            "endpoint",
            "request_timeout_seconds",
            "max_retries",
            "upload_part_mb",
            "upload_concurrency",
        ),
        _CLOUDS,
    ),
    **dict.fromkeys(
        (
            "anonymous",
            "region",
            "access_key",
            "secret_key",
            "session_token",
            "profile",
            "role_arn",
            "virtual_host_style",
            "sign_payload",
        ),
        _S3,
    ),
    **dict.fromkeys(("project", "credentials_json", "credentials_path"), _GCS),
    **dict.fromkeys(("account_name", "account_key"), _AZBLOB),
}
_SCHEMES = {Backend.S3: ("s3",), Backend.GCS: ("gs", "gcs"), Backend.AZBLOB: ("az", "azblob")}
_CONTAINER = re.compile(r"[a-z0-9A-Z][a-z0-9A-Z._-]{1,221}")


class Root(msgspec.Struct, frozen=True):
    """`bucket/prefix` taken apart."""

    container: str
    prefix: str

    @property
    def path(self) -> str:
        return f"{self.container}/{self.prefix}" if self.prefix else self.container


def cloud_root(settings: DurableSettings) -> Root:
    """Bucket or container and the path below it; ValueError says what is wrong with them."""
    root = settings.root or ""
    scheme, separator, rest = root.partition("://")
    if separator and scheme not in _SCHEMES[settings.backend]:
        raise ValueError(
            f"begins with {scheme}://, which is not {settings.backend.value}: use "
            f"{_SCHEMES[settings.backend][0]}://name/prefix or name/prefix"
        )
    container, _, prefix = (rest if separator else root).partition("/")
    if not _CONTAINER.fullmatch(container):
        raise ValueError(f"{container!r} is no name of a bucket or container: use name or name/prefix")
    prefix = prefix.strip("/")
    if any(part in ("", ".", "..") for part in prefix.split("/")) and prefix:
        raise ValueError(f"{prefix!r} has an empty part, . or .. in it")
    return Root(container, prefix)


def problems(settings: DurableSettings, mode: str) -> list[tuple[str, str]]:
    """What is wrong with these settings in a storage mode (local, shared_fs, object_store): key and text."""
    found: list[tuple[str, str]] = []
    is_cloud = settings.backend in _CLOUDS
    if is_cloud and mode != "object_store":
        found.append(("backend", f"{settings.backend.value} needs storage.mode object_store, this is {mode}"))
    if not is_cloud and mode == "object_store":
        found.append(("backend", "storage.mode object_store needs s3, gcs or azblob"))
        return found
    found += _without_effect(settings)
    if settings.root is None:
        if mode != "local":
            found.append(
                ("root", "is required: " + ("bucket/prefix" if is_cloud else "a directory all brokers see"))
            )
    elif is_cloud:
        try:
            cloud_root(settings)
        except ValueError as error:
            found.append(("root", str(error)))
    elif "://" in settings.root:
        found.append(("root", "is a directory with backend fs: use a path, or backend s3, gcs or azblob"))
    if settings.endpoint is not None and is_cloud:
        found += _about_endpoint(settings.endpoint)
    return found + _about_credentials(settings)


def _without_effect(settings: DurableSettings) -> list[tuple[str, str]]:
    return [
        (name, f"has no effect with backend {settings.backend.value}: remove it")
        for name, backends in _BACKENDS_OF.items()
        if settings.backend not in backends and getattr(settings, name) != _DEFAULTS[name]
    ]


def _about_endpoint(endpoint: str) -> list[tuple[str, str]]:
    try:
        parts = urlsplit(endpoint)
        is_right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return [("endpoint", "is no URL: use http://host:port or https://host")]
    if not is_right:
        return [("endpoint", "must be http://host:port or https://host")]
    if parts.username or parts.password or parts.query:
        return [("endpoint", "must hold neither credentials nor a query: use the keys made for them")]
    return []


def _about_credentials(settings: DurableSettings) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if settings.backend is Backend.S3:
        if settings.access_key and not settings.secret_key:
            found.append(("secret_key", "is required with access_key"))
        if settings.secret_key and not settings.access_key:
            found.append(("access_key", "is required with secret_key"))
        if settings.session_token and not settings.access_key:
            found.append(("session_token", "belongs to access_key and secret_key, which are not set"))
        if settings.profile and settings.access_key:
            found.append(("profile", "and access_key are two identities: keep one"))
    if settings.backend is Backend.GCS:
        if settings.credentials_json and settings.credentials_path:
            found.append(("credentials_path", "and credentials_json are two identities: keep one"))
        if settings.credentials_json and not _is_json_object(settings.credentials_json):
            found.append(("credentials_json", "is not the JSON of a service account key"))
    if settings.backend is Backend.AZBLOB and settings.account_key:
        if not settings.account_name:
            found.append(("account_name", "is required with account_key"))
        if not _is_base64(settings.account_key):
            found.append(("account_key", "is not Base64: copy the whole key"))
    if settings.backend is Backend.S3 and settings.anonymous:
        found += [
            (name, "has no effect with anonymous: remove one of them")
            for name in (
                "access_key",
                "profile",
                "role_arn",
                "credentials_json",
                "credentials_path",
                "account_key",
            )
            if getattr(settings, name)
        ]
    return found


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except msgspec.DecodeError:
        return False


def _is_base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except binascii.Error:
        return False


def open_store(settings: DurableSettings) -> DurableStore:
    """The store these settings describe. Nothing is asked of it yet."""
    if settings.backend is Backend.FS:
        if settings.root is None:
            raise Rejected("storage.durable.root: is required: a directory")
        return DirectoryStore(Path(settings.root))
    # Imported here: the library behind it comes with pydanube[cloud] only.
    from pydanube.stores.cloud_clients import open_cloud_store  # noqa: PLC0415

    return open_cloud_store(settings)
