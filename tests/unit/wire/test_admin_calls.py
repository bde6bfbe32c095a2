"""How calls of the admin port are refused."""

import pytest
from google.protobuf.message import Message

from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected, Status, Unavailable
from pydanube.protocol.danube_admin_pb2 import TopicResponse
from pydanube.protocol.http2.headers import Headers
from pydanube.wire.admin_calls import methods, refused_as_not_found


async def refusal(error: DanubeError, *, as_not_found: bool) -> DanubeError:
    """What is told of an error a service meets."""

    async def answer(body: bytes) -> Message:
        if not as_not_found:
            raise error
        with refused_as_not_found():
            raise error

    method = methods("package.Service", {"Method": answer})["/package.Service/Method"]
    with pytest.raises(DanubeError) as caught:
        await method(b"", Headers("POST", "/package.Service/Method", {}, -1))
    return caught.value


async def test_an_error_tells_its_code_at_the_end_of_its_text() -> None:
    told = await refusal(Rejected("no such topic", ErrorCode.TOPIC_UNKNOWN), as_not_found=False)
    assert (told.text, told.status) == ("no such topic (code 200)", Status.NOT_FOUND)


@pytest.mark.parametrize(
    "error",
    [
        Rejected("invalid", ErrorCode.TOPIC_NAME_INVALID),
        Conflict("exists", ErrorCode.TOPIC_CONFLICT),
        Rejected("unknown", ErrorCode.SUBSCRIPTION_UNKNOWN),
    ],
)
async def test_refusals_are_not_found_where_tools_know_nothing_else(error: DanubeError) -> None:
    told = await refusal(error, as_not_found=True)
    assert told.status is Status.NOT_FOUND
    assert told.code is error.code
    assert told.text == f"{error.text} (code {error.code.number})"


async def test_a_broker_in_trouble_is_never_mistaken_for_a_missing_topic() -> None:
    told = await refusal(Unavailable("stopping", ErrorCode.STOPPING), as_not_found=True)
    assert told.status is Status.UNAVAILABLE


async def test_an_answer_is_encoded() -> None:
    async def answer(body: bytes) -> Message:
        assert body == b"asked"
        return TopicResponse(success=True)

    method = methods("package.Service", {"Method": answer})["/package.Service/Method"]
    assert TopicResponse.FromString(
        await method(b"asked", Headers("POST", "/package.Service/Method", {}, -1))
    ).success
