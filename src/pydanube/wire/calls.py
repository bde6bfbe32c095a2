"""What every service does with a call: decode the request, count the outcome."""

from types import TracebackType
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from pydanube.kernel.errors import ErrorCode, Rejected

Request = TypeVar("Request", bound=Message)


def parse(kind: type[Request], body: bytes) -> Request:
    """Decode a request, or say that it cannot be."""
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise Rejected(f"malformed {kind.DESCRIPTOR.name}: {error}", ErrorCode.MALFORMED_REQUEST) from error


class CallCounts:
    """How often a method succeeded and failed; as a context manager it counts one call."""

    __slots__ = ("errors", "ok")

    def __init__(self) -> None:
        self.ok = 0
        self.errors = 0

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.ok += 1
        else:
            self.errors += 1
