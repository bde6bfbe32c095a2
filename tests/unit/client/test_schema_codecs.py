"""What the client remembers of schemas, over a registry that counts what it is asked."""

import asyncio
from typing import Any

import pytest

from pydanube.client import ErrorCode, Rejected, schema_codecs
from pydanube.client.schemas import Schemas
from pydanube.protocol import schema_registry_pb2 as pb


class CountingRegistry:
    """Has one schema, of id 1, once it is registered."""

    def __init__(self) -> None:
        self.is_registered = False
        self.calls: list[str] = []

    async def call(self, method: str, request: Any, response: type[Any]) -> Any:
        name = method.rpartition("/")[2]
        self.calls.append(name)
        await asyncio.sleep(0)
        if name == "RegisterSchema":
            self.is_registered = True
            return pb.RegisterSchemaResponse(schema_id=1, version=1)
        assert name == "GetSchema"
        if not self.is_registered or request.schema_id != 1:
            raise Rejected(f"no schema has id {request.schema_id}", ErrorCode.SCHEMA_UNKNOWN)
        return pb.GetSchemaResponse(
            schema_id=1, version=1, schema_type="string", schema_definition=b'"String"'
        )


@pytest.fixture
def registry() -> CountingRegistry:
    return CountingRegistry()


@pytest.fixture
def schemas(registry: CountingRegistry) -> Schemas:
    return Schemas(registry)


async def refused(schemas: Schemas, schema_id: int) -> None:
    with pytest.raises(Rejected, match=f"id {schema_id}") as caught:
        await schemas.codec_by_id(schema_id, 1)
    assert caught.value.code is ErrorCode.SCHEMA_UNKNOWN


async def test_many_who_ask_at_once_are_one_question(registry: CountingRegistry, schemas: Schemas) -> None:
    await schemas.register("s", "", "string")
    codecs = await asyncio.gather(*(schemas.codec_by_id(1, 1) for _ in range(10)))
    assert len(set(map(id, codecs))) == 1
    assert registry.calls == ["RegisterSchema", "GetSchema"]


async def test_what_is_not_there_is_not_asked_for_again_at_once(
    registry: CountingRegistry, schemas: Schemas
) -> None:
    for _ in range(10):
        await refused(schemas, 1)
    assert registry.calls == ["GetSchema"]
    await schemas.register("s", "", "string")
    assert (await schemas.codec_by_id(1, 1)).decode(b"x") == "x"


async def test_the_memory_of_what_is_not_there_is_short_and_bounded(
    registry: CountingRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema_codecs, "UNKNOWN_MAX", 2)
    schemas = Schemas(registry)
    for schema_id in (7, 8, 9, 7):
        await refused(schemas, schema_id)
    assert len(registry.calls) == 4
    monkeypatch.setattr(schema_codecs, "UNKNOWN_MS", 0)
    schemas = Schemas(registry)
    for _ in range(2):
        await refused(schemas, 7)
    assert len(registry.calls) == 6


async def test_other_failures_are_asked_for_again(
    registry: CountingRegistry, schemas: Schemas, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*given: Any) -> None:
        registry.calls.append("failed")
        raise Rejected("no permission", ErrorCode.PERMISSION_DENIED)

    monkeypatch.setattr(registry, "call", fail)
    for _ in range(3):
        with pytest.raises(Rejected, match="no permission"):
            await schemas.codec_by_id(1, 1)
    assert len(registry.calls) == 3
