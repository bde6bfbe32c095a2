"""What every service of the admin port does with a call."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from google.protobuf.message import Message

from pydanube.kernel.errors import Conflict, DanubeError, Rejected, Status
from pydanube.protocol.http2.headers import Headers

Answer = Callable[[bytes], Awaitable[Message]]
Method = Callable[[bytes, Headers], Awaitable[bytes]]


def methods(service: str, answers: dict[str, Answer]) -> dict[str, Method]:
    """Every method of a service by its path."""
    return {f"/{service}/{name}": _method(answer) for name, answer in answers.items()}


@contextmanager
def refused_as_not_found() -> Iterator[None]:
    """Tell every refusal as NOT_FOUND: the published tools know no other failure of these calls."""
    try:
        yield
    except (Rejected, Conflict) as error:
        raise _NotFound(error.text, error.code) from error


class _NotFound(DanubeError):
    @property
    def status(self) -> Status:
        return Status.NOT_FOUND


def _method(answer: Answer) -> Method:
    """Encode the answer; end the text of an error with its code, for gRPC has no other place for it."""

    async def run(body: bytes, headers: Headers) -> bytes:
        try:
            return (await answer(body)).SerializeToString()
        except DanubeError as error:
            kind = _NotFound if isinstance(error, _NotFound) else DanubeError
            raise kind(f"{error.text} (code {error.code.number})", error.code) from error

    return run
