"""What an object store of a cloud answered, in words an operator can act on.

The library's own text is not passed on: it can hold query strings with signatures and whole answers of
servers. Status and error code are taken from it, the rest is said here.
"""

import re
from dataclasses import dataclass

from pydanube.kernel.errors import DanubeError
from pydanube.stores.store import exists_already, missing, unavailable

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,80})</Code>|\"code\":\s*\"?([A-Za-z0-9]{1,80})")
_REFUSED_BY_STS = re.compile(r"An error occurred \(([A-Za-z0-9.]{1,80})\)")
_DETAIL_MAX = 300
_QUERY = re.compile(r"\?[^\s\"')]*")

_NO_CONTAINER = {"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"}
_BAD_KEY = {
    "InvalidAccessKeyId": "the access key is unknown to the store",
    "SignatureDoesNotMatch": "the secret key does not fit the access key",
    "ExpiredToken": "the session token has expired",
    "InvalidToken": "the session token is not valid",
    "RequestTimeTooSkewed": "the clock of this machine is wrong: synchronise it",
    "AuthenticationFailed": "the account key does not fit the account, or the clock of this machine is wrong",
}
_WRONG_REGION = {"PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect"}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks, where, and what that must be allowed to do: for messages, without any secret."""

    container: str
    """`bucket 'name'` or `container 'name'`."""
    endpoint: str
    credentials: str
    """Where the credentials come from: `storage.durable.access_key`, the environment …"""
    permissions: dict[str, str]
    """Action (`put`, `read`, `list`, `delete`) to the permission the provider calls it by."""


def translated(error: BaseException, action: str, place: str, identity: Identity) -> DanubeError:
    """The error of ours that says what an exception of the library means."""
    text = str(error)
    name = type(error).__name__
    status = _first(_STATUS, text)
    code = _first(_CODE, text)
    if name == "AlreadyExistsError" or status == "412":
        return exists_already(place)
    if code in _NO_CONTAINER:
        return unavailable(f"{place}: {identity.container} does not exist at {identity.endpoint}: create it")
    if code in _WRONG_REGION or status in ("301", "307", "308"):
        return unavailable(
            f"{place}: {identity.container} is in another region than storage.durable.region says: correct it"
        )
    if "credential provider" in text:
        said = _first(_REFUSED_BY_STS, text)
        return unavailable(
            f"{place}: no credentials{_in_brackets(said)} from {identity.credentials}: for a role, allow sts:AssumeRole "
            "to whoever takes it"
        )
    if code in _BAD_KEY:
        return unavailable(f"{place}: access denied ({code}) with {identity.credentials}: {_BAD_KEY[code]}")
    if name in ("PermissionDeniedError", "UnauthenticatedError") or status in ("401", "403"):
        return unavailable(
            f"{place}: access denied{_in_brackets(code)} with {identity.credentials}: "
            f"grant {identity.permissions[action]}"
        )
    if isinstance(error, FileNotFoundError):
        return missing(place)
    return unavailable(f"{place}: {_trouble(text, status, code, identity)}")


def _trouble(text: str, status: str, code: str, identity: Identity) -> str:
    lowered = text.lower()
    if status == "429" or code in ("SlowDown", "ServerBusy"):
        return "the store asks to slow down: raise its request limit, or wait"
    if status:
        return f"{identity.endpoint} answered {status}{_in_brackets(code)}: look at the store's own log or status page"
    if "connection refused" in lowered:
        return (
            f"{identity.endpoint} refuses connections: is it running, and is storage.durable.endpoint right?"
        )
    if "dns" in lowered or "lookup address" in lowered:
        return f"the host of {identity.endpoint} is not known: check storage.durable.endpoint and the name service"
    if "certificate" in lowered:
        return f"the certificate of {identity.endpoint} is not trusted by this machine"
    if "timed out" in lowered or "timeout" in lowered:
        return (
            f"{identity.endpoint} did not answer in time: check the network, or raise "
            "storage.durable.request_timeout_seconds"
        )
    if "169.254." in text or "metadata.google" in text or "credential" in lowered:
        return (
            f"no credentials found with {identity.credentials}: set them in storage.durable, in the environment, "
            "or give this machine a role"
        )
    detail = _QUERY.sub("", text.split("Debug source", 1)[0]).strip()
    return f"{identity.endpoint} failed: {' '.join(detail.split())[:_DETAIL_MAX]}"


def is_beyond_the_end(error: BaseException) -> bool:
    """Said by the server, or by the library when a server sends the whole object instead."""
    text = str(error)
    return _first(_STATUS, text) == "416" or "Wanted range starting at" in text


def _in_brackets(code: str) -> str:
    return f" ({code})" if code else ""


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next((group for group in found.groups() if group), "") if found else ""
