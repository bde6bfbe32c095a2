"""The calls for schemas with references on the client port: a permission on the cluster opens them, nothing less."""

from typing import Any

import pytest
from broker_harness.running_broker import RunningBroker

from pydanube.client import ErrorCode, Rejected, SchemaReference, connect


async def test_referring_to_other_subjects_needs_the_cluster(
    secured: RunningBroker, realm: Any, admin: Any
) -> None:
    await admin.role("schemas", "ManageSchema", "Lookup")
    await admin.bind("everywhere", ["schemas"])
    await admin.bind("here", ["schemas"], "namespace", "shop")
    money = '{"type": "fixed", "name": "Money", "size": 8}'
    references = [SchemaReference("Money", "shop/money", 1)]

    def client(name: str) -> Any:
        return connect(f"danubes://{secured.address}", tls=realm.tls, token=realm.token(name))

    async with client("here") as limited:
        assert (await limited.schemas.register("shop/money", money, "avro")).version == 1
        for call in (limited.schemas.register, limited.schemas.check):
            with pytest.raises(Rejected) as caught:
                await call("shop/orders", '"Money"', "avro", references=references)
            assert caught.value.code is ErrorCode.PERMISSION_DENIED
    async with client("everywhere") as trusted:
        await trusted.schemas.register("shop/orders", '"Money"', "avro", references=references)
        codec = await trusted.schemas.codec("shop/orders")
        assert codec.decode(codec.encode(b"12345678")) == b"12345678"
