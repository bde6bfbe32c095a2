"""The way to the schema registry, and what its refusals mean."""

from typing import Final, TypeVar

from google.protobuf.message import Message

from pydanube.client.unary_channel import CallFailed, UnaryChannel
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Status, Unavailable

SERVICE: Final = "danube_schema.SchemaRegistry"

Response = TypeVar("Response", bound=Message)


class RegistryChannel:
    def __init__(self, channel: UnaryChannel) -> None:
        self._channel = channel

    async def call(self, method: str, request: Message, response: type[Response]) -> Response:
        """One call of the registry.

        Raises:
            Rejected: the request must change, or names what the registry does not know.
            Unavailable: the registry cannot be reached, or is busy.
        """
        try:
            return await self._channel.call(SERVICE, method, request, response)
        except CallFailed as error:
            raise _error_of(error) from error


def _error_of(failed: CallFailed) -> DanubeError:
    text = str(failed)
    match failed.status:
        case Status.UNAVAILABLE | Status.DEADLINE_EXCEEDED | Status.RESOURCE_EXHAUSTED:
            return Unavailable(text, ErrorCode.OVERLOADED)
        case Status.NOT_FOUND:
            return Rejected(text, ErrorCode.SCHEMA_UNKNOWN)
        case Status.FAILED_PRECONDITION:
            return Conflict(text, ErrorCode.SUBJECT_UNKNOWN)
        case Status.INVALID_ARGUMENT:
            return Rejected(text)
        case Status.PERMISSION_DENIED:
            return Rejected(text, ErrorCode.PERMISSION_DENIED)
        case Status.UNAUTHENTICATED:
            return Rejected(text, ErrorCode.TOKEN_INVALID)
        case Status.INTERNAL:
            # What the registry answers to a schema it cannot take.
            return Rejected(text, ErrorCode.SCHEMA_INVALID)
        case _:
            return DanubeError(text)
