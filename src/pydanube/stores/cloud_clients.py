"""Clients of the three providers, made from settings.

Credentials come from the settings, else from where each provider's own tools find them: environment, files they
keep, the role of the machine or pod.
"""

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydanube.kernel.errors import Rejected
from pydanube.stores.cloud import CloudStore
from pydanube.stores.cloud_errors import Identity
from pydanube.stores.settings import Backend, DurableSettings, Root, cloud_root

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Credential

_CONNECT_SECONDS = 5
_BACKOFF_SECONDS_MAX = 5
_RETRY_SECONDS_MAX = 240
"""A request is signed once; after five minutes the providers do not accept its repetition."""

_SESSION_NAME = "pydanube"
_MB = 1 << 20


def open_cloud_store(settings: DurableSettings) -> CloudStore:
    try:
        from obstore import store as providers  # noqa: PLC0415
        from obstore.exceptions import BaseError  # noqa: PLC0415
    except ImportError as error:
        raise Rejected(
            f"storage.durable.backend {settings.backend.value}: install pydanube[cloud] to use it"
        ) from error
    try:
        root = cloud_root(settings)
    except ValueError as error:
        raise Rejected(f"storage.durable.root: {error}") from None
    kinds = {
        Backend.S3: (providers.S3Store, _s3_options, _s3_identity),
        Backend.GCS: (providers.GCSStore, _gcs_options, _gcs_identity),
        Backend.AZBLOB: (providers.AzureStore, _azure_options, _azure_identity),
    }
    kind, options_of, identity_of = kinds[settings.backend]
    options = {
        "prefix": root.prefix or None,
        "client_options": _client_options(settings),
        **options_of(settings, root),
    }
    try:
        objects = kind(root.container, retry_config=_retries(settings, settings.max_retries), **options)
        creating = kind(root.container, retry_config=_retries(settings, 0), **options)
    except (BaseError, ValueError) as error:
        # The library's text quotes what it was given, which may be a key: only its first line is general.
        raise Rejected(f"storage.durable: {str(error).splitlines()[0]}") from None
    return CloudStore(
        objects,
        creating,
        address=f"{_SCHEME[settings.backend]}://{root.path}",
        identity=identity_of(settings, root),
        part_bytes=settings.upload_part_mb * _MB,
        concurrency=settings.upload_concurrency,
    )


_SCHEME = {Backend.S3: "s3", Backend.GCS: "gs", Backend.AZBLOB: "az"}


def _client_options(settings: DurableSettings) -> "ClientConfig":
    options: ClientConfig = {
        "timeout": timedelta(seconds=settings.request_timeout_seconds),
        "connect_timeout": timedelta(seconds=min(_CONNECT_SECONDS, settings.request_timeout_seconds)),
        "user_agent": "pydanube",
    }
    if settings.endpoint is not None and settings.endpoint.startswith("http://"):
        options["allow_http"] = True
    if settings.project is not None:
        options["default_headers"] = {"x-goog-user-project": settings.project}
    return options


def _retries(settings: DurableSettings, max_retries: int) -> "RetryConfig":
    longest = (settings.request_timeout_seconds + _BACKOFF_SECONDS_MAX) * (max_retries + 1)
    return {
        "max_retries": max_retries,
        "retry_timeout": timedelta(seconds=min(longest, _RETRY_SECONDS_MAX)),
        "backoff": {
            "init_backoff": timedelta(milliseconds=100),
            "max_backoff": timedelta(seconds=_BACKOFF_SECONDS_MAX),
            "base": 2,
        },
    }


def _s3_options(settings: DurableSettings, root: Root) -> dict[str, Any]:
    options: dict[str, Any] = {
        "unsigned_payload": not settings.sign_payload,
        # One object is deleted at a time, and not every store that speaks S3 has the request for many.
        "disable_bulk_delete": True,
        "virtual_hosted_style_request": settings.virtual_host_style,
    }
    if settings.region is not None:
        options["region"] = settings.region
    if settings.endpoint is not None:
        options["endpoint"] = _s3_endpoint(settings.endpoint, root, settings.virtual_host_style)
    if settings.anonymous:
        options["skip_signature"] = True
    elif settings.profile is not None or settings.role_arn is not None:
        options["credential_provider"] = _aws_session_credentials(settings)
    elif settings.access_key is not None and settings.secret_key is not None:
        options["credential_provider"] = _given_keys(settings)
    return options


def _s3_endpoint(endpoint: str, root: Root, is_virtual_host_style: bool) -> str:
    """With the bucket in the host name, the library wants to be given that very host."""
    if not is_virtual_host_style:
        return endpoint.rstrip("/")
    parts = urlsplit(endpoint)
    return f"{parts.scheme}://{root.container}.{parts.netloc}"


def _given_keys(settings: DurableSettings) -> "Callable[[], S3Credential]":
    """Given as a provider: the library would complete keys given as options with a token of the environment."""
    given: S3Credential = {
        "access_key_id": settings.access_key or "",
        "secret_access_key": settings.secret_key or "",
        "token": settings.session_token,
        "expires_at": None,
    }
    return lambda: given


def _aws_session_credentials(settings: DurableSettings) -> Any:
    try:
        import boto3  # noqa: PLC0415
        import botocore.exceptions  # noqa: PLC0415
        from obstore.auth.boto3 import Boto3CredentialProvider, StsCredentialProvider  # noqa: PLC0415
    except ImportError as error:
        key = "role_arn" if settings.role_arn is not None else "profile"
        raise Rejected(f"storage.durable.{key}: install pydanube[aws] to use it") from error
    try:
        session = boto3.Session(
            aws_access_key_id=settings.access_key,
            aws_secret_access_key=settings.secret_key,
            aws_session_token=settings.session_token,
            region_name=settings.region,
            profile_name=settings.profile,
        )
        if settings.role_arn is not None:
            sts = StsCredentialProvider(session, RoleArn=settings.role_arn, RoleSessionName=_SESSION_NAME)
            return lambda: _in_utc(sts())
        return Boto3CredentialProvider(session)
    except botocore.exceptions.ProfileNotFound:
        raise Rejected(
            f"storage.durable.profile: {settings.profile!r} is in none of the AWS configuration files"
        ) from None
    except ValueError:
        raise Rejected(f"storage.durable.profile: {settings.profile!r} holds no credentials") from None


def _in_utc(credential: "S3Credential") -> "S3Credential":
    """The library takes no other zone than Python's own UTC, and botocore gives its end times in another UTC."""
    expires_at = credential["expires_at"]
    return {**credential, "expires_at": expires_at and expires_at.astimezone(UTC)}


def _s3_identity(settings: DurableSettings, root: Root) -> Identity:
    if settings.anonymous:
        credentials = "no credentials (storage.durable.anonymous)"
    elif settings.role_arn is not None:
        credentials = f"role {settings.role_arn} (storage.durable.role_arn)"
    elif settings.profile is not None:
        credentials = f"profile {settings.profile} (storage.durable.profile)"
    elif settings.access_key is not None:
        credentials = "the key of storage.durable.access_key"
    else:
        credentials = "the credentials of the environment or the machine's role"
    where = f"arn:aws:s3:::{root.path}/*"
    return Identity(
        container=f"bucket {root.container!r}",
        endpoint=settings.endpoint or f"S3 in {settings.region or 'the region of the environment'}",
        credentials=credentials,
        permissions={
            "put": f"s3:PutObject (and s3:AbortMultipartUpload) on {where}",
            "read": f"s3:GetObject on {where}, s3:ListBucket on arn:aws:s3:::{root.container}",
            "list": f"s3:ListBucket on arn:aws:s3:::{root.container}",
            "delete": f"s3:DeleteObject on {where}",
        },
    )


def _gcs_options(settings: DurableSettings, root: Root) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.endpoint is not None:
        options["base_url"] = settings.endpoint.rstrip("/")
    if settings.credentials_json is not None:
        options["service_account_key"] = settings.credentials_json
    elif settings.credentials_path is not None:
        options["application_credentials"] = settings.credentials_path
    return options


def _gcs_identity(settings: DurableSettings, root: Root) -> Identity:
    if settings.credentials_json is not None:
        credentials = "the key of storage.durable.credentials_json"
    elif settings.credentials_path is not None:
        credentials = f"the key of {settings.credentials_path} (storage.durable.credentials_path)"
    else:
        credentials = "the credentials of the environment or the machine's service account"
    return Identity(
        container=f"bucket {root.container!r}",
        endpoint=settings.endpoint or "Google Cloud Storage",
        credentials=credentials,
        permissions={
            action: f"storage.objects.{name} on bucket {root.container!r}"
            for action, name in (("put", "create"), ("read", "get"), ("list", "list"), ("delete", "delete"))
        },
    )


def _azure_options(settings: DurableSettings, root: Root) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if settings.endpoint is not None:
        options["endpoint"] = settings.endpoint.rstrip("/")
    if settings.account_name is not None:
        options["account_name"] = settings.account_name
    if settings.account_key is not None:
        options["account_key"] = settings.account_key
    return options


def _azure_identity(settings: DurableSettings, root: Root) -> Identity:
    if settings.account_key is not None:
        credentials = "the key of storage.durable.account_key"
    else:
        credentials = "the credentials of the environment or the machine's managed identity"
    needed = f"the role Storage Blob Data Contributor on container {root.container!r}"
    return Identity(
        container=f"container {root.container!r}",
        endpoint=settings.endpoint or f"Azure account {settings.account_name or 'of the environment'}",
        credentials=credentials,
        permissions=dict.fromkeys(("put", "read", "list", "delete"), needed),
    )
