"""What goes wrong outside: which of it passes by itself, and what a catalog means when it refuses."""

from typing import Final

from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.spark.failures import sentence

_PASSING: Final = (
    "FILE_NOT_EXIST",
    "FileNotFoundException",
    "pydanube.kernel.errors.Unavailable",
    "Connection refused",
    "Connection reset",
    "SocketTimeoutException",
    "NoHttpResponseException",
    "ServiceFailureException",
    "ServiceUnavailableException",
    "CommitStateUnknownException",
)
"""In what Spark says: a segment was replaced while it was read, or a broker, a store or a catalog was away. Whether a
commit was made although the answer was lost, the next step sees in the table."""

_REFUSING: Final = ("NotAuthorizedException", "ForbiddenException")


def passes(error: BaseException) -> bool:
    """Whether the same may succeed later."""
    return isinstance(error, Unavailable) or any(word in str(error) for word in _PASSING)


def of_catalog(error: BaseException, address: str) -> DanubeError:
    """What kept a catalog from being asked for the first time, with what can be done about it."""
    said = sentence(error)
    if any(word in str(error) for word in _REFUSING):
        return Rejected(
            f"the catalog {address} does not let us in: {said}; check DANUBE_CATALOG_TOKEN or DANUBE_CATALOG_CREDENTIAL",
            ErrorCode.PERMISSION_DENIED,
        )
    if passes(error):
        return Unavailable(
            f"the catalog {address} cannot be reached: {said}; check that it runs, --uri and --warehouse"
        )
    return Rejected(
        f"the catalog {address} cannot be used: {said}; check --uri, --warehouse and --catalog-property"
    )
