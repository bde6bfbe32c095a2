"""The way to the schema registry, and what its refusals mean."""

import re
from typing import Final, TypeVar

from google.protobuf.message import Message

from pydanube.client.cluster import Cluster
from pydanube.client.unary_channel import CallFailed, UnaryChannel
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Status, Unavailable

Response = TypeVar("Response", bound=Message)

_CODE: Final = re.compile(r"\(code (\d+)\)$")
"""How the refusals of our own service end, for a status says little."""
_CODES: Final = {code.number: code for code in ErrorCode}


class RegistryChannel:
    def __init__(self, cluster: Cluster, channel: UnaryChannel) -> None:
        self._cluster = cluster
        self._channel = channel

    async def call(self, method: str, request: Message, response: type[Response]) -> Response:
        """One call of the registry, repeated as the client's retries say; `method` is package.Service/Method.

        Raises:
            Rejected: the request must change, or names what the registry does not know.
            Conflict: something else stands against it.
            Unavailable: the registry cannot be reached, or is busy.
        """
        return await self._cluster.with_retries(lambda: self._attempt(method, request, response))

    async def _attempt(self, method: str, request: Message, response: type[Response]) -> Response:
        service, _, name = method.partition("/")
        try:
            return await self._channel.call(service, name, request, response)
        except CallFailed as error:
            raise _error_of(error) from error


def _error_of(failed: CallFailed) -> DanubeError:
    text = str(failed)
    told = _CODE.search(text)
    code = None if told is None else _CODES.get(int(told[1]))
    match failed.status:
        case Status.UNAVAILABLE | Status.DEADLINE_EXCEEDED | Status.RESOURCE_EXHAUSTED:
            return Unavailable(text, ErrorCode.OVERLOADED)
        case Status.NOT_FOUND:
            return Rejected(text, code or ErrorCode.SCHEMA_UNKNOWN)
        case Status.FAILED_PRECONDITION:
            return Conflict(text, code or ErrorCode.SUBJECT_UNKNOWN)
        case Status.INVALID_ARGUMENT:
            return Rejected(text)
        case Status.PERMISSION_DENIED:
            return Rejected(text, ErrorCode.PERMISSION_DENIED)
        case Status.UNAUTHENTICATED:
            return Rejected(text, ErrorCode.TOKEN_INVALID)
        case Status.INTERNAL:
            # What the registry answers to a schema it cannot take.
            return Rejected(text, code or ErrorCode.SCHEMA_INVALID)
        case _:
            return DanubeError(text)
