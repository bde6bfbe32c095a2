"""The parts of the gRPC client that need no broker: routing, retries, addresses."""

import pytest

from pydanube.client.grpc import CallFailed, Client, Retries
from pydanube.client.routing import fnv1a_64, partition_name, partition_of_key
from pydanube.kernel.errors import Rejected, Status


@pytest.mark.parametrize(
    ("text", "hash_value"),
    [(b"", 0xCBF29CE484222325), (b"a", 0xAF63DC4C8601EC8C), (b"foobar", 0x85944171F73967E8)],
)
def test_keys_are_hashed_as_every_client_does(text: bytes, hash_value: int) -> None:
    assert fnv1a_64(text) == hash_value


def test_a_key_always_meets_the_same_partition() -> None:
    assert partition_of_key("foobar", 3) == 0x85944171F73967E8 % 3
    assert {partition_of_key(f"key-{n}", 4) for n in range(100)} == {0, 1, 2, 3}
    assert partition_name("/default/orders", 2) == "/default/orders-part-2"


class Flaky:
    """Fails with the given statuses, one after the other, then succeeds."""

    def __init__(self, *statuses: Status) -> None:
        self.statuses = list(statuses)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.statuses:
            raise CallFailed("/s/M", self.statuses.pop(0), "reason")
        return "done"


NO_WAIT = Retries(attempts_max=5, base_ms=0)


@pytest.mark.parametrize("status", [Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED])
async def test_what_may_pass_is_tried_again(status: Status) -> None:
    call = Flaky(*[status] * 5)
    assert await NO_WAIT.run(call) == "done"
    assert call.calls == 6


async def test_there_is_an_end_to_trying() -> None:
    call = Flaky(*[Status.UNAVAILABLE] * 50)
    with pytest.raises(CallFailed, match="M failed with UNAVAILABLE: reason"):
        await NO_WAIT.run(call)
    assert call.calls == 6


@pytest.mark.parametrize("status", [Status.INVALID_ARGUMENT, Status.NOT_FOUND, Status.PERMISSION_DENIED])
async def test_what_will_not_change_is_not_tried_again(status: Status) -> None:
    call = Flaky(status)
    with pytest.raises(CallFailed) as caught:
        await NO_WAIT.run(call)
    assert (call.calls, caught.value.status, caught.value.retryable) == (1, status, False)


@pytest.mark.parametrize(
    "url", ["", "host", "http://", "ftp://h:1", "http://h:x", "http://h:1/path", "a b:1"]
)
def test_an_address_that_cannot_be_dialled_is_refused_at_once(url: str) -> None:
    with pytest.raises(Rejected, match="expected http://host:port"):
        Client(url)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:6650", "https://broker:6650/", "127.0.0.1:6650", "http://[::1]:1"]
)
def test_addresses_come_with_or_without_scheme(url: str) -> None:
    assert Client(url).seed.connect_url == url
