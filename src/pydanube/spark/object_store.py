"""How Spark's own readers get into the object store that history lies in."""

from typing import Final

import msgspec

from pydanube.kernel.errors import Rejected
from pydanube.stores.settings import Backend, DurableSettings

S3A: Final = "spark.hadoop.fs.s3a."

_GIVEN_KEYS: Final = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_SESSION_KEYS: Final = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_NOBODY: Final = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_ROLE: Final = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
_WHAT_THE_MACHINE_HAS: Final = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


def object_store_config(settings: DurableSettings) -> dict[str, str]:
    """Settings of Spark that let it read what a broker with this `storage.durable` has written.

    Empty for a directory; and for stores other than S3, whose history comes through the data source.

    Raises:
        Rejected: Spark cannot be told.
    """
    if settings.backend is not Backend.S3:
        return {}
    if settings.profile is not None:
        raise Rejected("storage.durable.profile: Spark knows no profiles: set AWS_PROFILE and leave it out")
    config = {
        "path.style.access": str(not settings.virtual_host_style).lower(),
        "connection.request.timeout": f"{settings.request_timeout_seconds}s",
        "attempts.maximum": str(settings.max_retries + 1),
        "endpoint": settings.endpoint,
        "endpoint.region": settings.region or ("us-east-1" if settings.endpoint else None),
        **_credentials(settings),
    }
    return {f"{S3A}{name}": value for name, value in config.items() if value is not None}


def store_options(settings: DurableSettings) -> dict[str, str]:
    """The same for the data source, whose options `store.…` these are."""
    said = msgspec.to_builtins(settings)
    defaults = msgspec.to_builtins(DurableSettings())
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in said.items()
        if name not in ("backend", "root") and value != defaults[name]
    }


def _credentials(settings: DurableSettings) -> dict[str, str | None]:
    if settings.anonymous:
        return {"aws.credentials.provider": _NOBODY}
    if settings.access_key is None:
        own = _WHAT_THE_MACHINE_HAS
    else:
        own = _GIVEN_KEYS if settings.session_token is None else _SESSION_KEYS
    keys = {
        "access.key": settings.access_key,
        "secret.key": settings.secret_key,
        "session.token": settings.session_token,
    }
    if settings.role_arn is None:
        return {"aws.credentials.provider": own, **keys}
    return {
        "aws.credentials.provider": _ROLE,
        "assumed.role.arn": settings.role_arn,
        "assumed.role.credentials.provider": own,
        **keys,
    }
