"""The errors an application meets: those of the kernel, two more, and how a broker's ERROR becomes one of them."""

from typing import Final

from pydanube.kernel.errors import (
    Conflict,
    Corrupt,
    DanubeError,
    ErrorCode,
    OutcomeUnknown,
    Rejected,
    Status,
    Unavailable,
)
from pydanube.protocol import native_pb2 as pb


class Timeout(Unavailable):
    """No answer came in time, and nothing depends on whether one was on its way."""


class QueueFull(Unavailable):
    """The producer holds as many unanswered bytes as it may: wait for `ready()`, then send again."""

    default_code = ErrorCode.OVERLOADED


class Disconnected(Unavailable):
    """The connection is gone; what was asked on it may be asked again on another."""


class Refused:
    """A broker's ERROR: the exception to raise, and which sequence the broker waits for, if that is the matter."""

    __slots__ = ("error", "expected_sequence")

    def __init__(self, error: DanubeError, expected_sequence: int | None = None) -> None:
        self.error: Final = error
        self.expected_sequence: Final = expected_sequence

    @classmethod
    def decode(cls, body: bytes, where: str) -> "Refused":
        """Read the body of an ERROR frame; `where` names the topic or broker in the text."""
        error = pb.Error.FromString(body)
        expected = error.expected_sequence if error.HasField("expected_sequence") else None
        return cls(_exception(error, where), expected)


_BY_STATUS: Final[dict[int, type[DanubeError]]] = {
    Status.UNAVAILABLE: Unavailable,
    Status.RESOURCE_EXHAUSTED: Unavailable,
    Status.DEADLINE_EXCEEDED: Unavailable,
    Status.ABORTED: Conflict,
    Status.ALREADY_EXISTS: Conflict,
    Status.FAILED_PRECONDITION: Conflict,
    Status.UNKNOWN: OutcomeUnknown,
    Status.DATA_LOSS: Corrupt,
    Status.INTERNAL: DanubeError,
}
_CODES: Final = {code.number: code for code in ErrorCode}
TAKEOVER_CODES: Final = frozenset({ErrorCode.PRODUCER_EXCLUSIVE, ErrorCode.CONSUMER_EXCLUSIVE})
"""After a reconnect these may mean our own former session, which the broker has not missed yet."""


def _exception(error: pb.Error, where: str) -> DanubeError:
    kind = _BY_STATUS.get(error.status, Rejected)
    text = f"{where}: {error.text or 'the broker gave no reason'} (code {error.code})"
    return kind(text, _CODES.get(error.code))
