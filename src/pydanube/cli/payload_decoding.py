"""Payloads as their schemas say: the registry is asked once for each schema that messages name."""

import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import click

from pydanube.cli.admin_connection import AdminConnection
from pydanube.cli.messages import ShownMessage
from pydanube.client.address import Address
from pydanube.kernel.errors import DanubeError
from pydanube.protocol import schema_registry_pb2 as pb
from pydanube.schemas.format import ParsedSchema, SchemaKind, kind_of, parse_schema

SCHEMAS_MAX: Final = 1000
"""Remembered at a time; a topic has a handful."""
_METHOD: Final = "danube_schema.SchemaRegistry/GetSchema"
_RAW_FIELDS: Final = ("raw_schema", "raw_proto")

Registry = Callable[[pb.GetSchemaRequest], Awaitable[pb.GetSchemaResponse]]


def registry_of(admin: AdminConnection) -> Registry:
    """The registry behind an admin port."""

    async def get(request: pb.GetSchemaRequest) -> pb.GetSchemaResponse:
        return await admin.call(_METHOD, request, pb.GetSchemaResponse)

    return get


@asynccontextmanager
async def registry_at(service_addr: str) -> AsyncIterator[Registry]:
    """The registry behind a client port; nothing is dialled before a message names a schema."""
    from pydanube.client.grpc import Client  # noqa: PLC0415 - slow to load

    address = Address.parse(service_addr)
    url = str(address).replace("danube", "http", 1)
    async with Client(url) as client:

        async def get(request: pb.GetSchemaRequest) -> pb.GetSchemaResponse:
            return await client.call(client.seed, "/" + _METHOD, request, pb.GetSchemaResponse)

        yield get


class PayloadDecoder:
    """Adds to messages what their payloads say. What cannot be decoded stays as it is, said once for each schema."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas: dict[tuple[int, int | None], ParsedSchema | None] = {}
        self._complained: set[tuple[int, int | None]] = set()

    async def decode(self, message: ShownMessage) -> ShownMessage:
        if message.schema_id is None:
            return message
        named = (message.schema_id, message.schema_version)
        if named not in self._schemas:
            if len(self._schemas) >= SCHEMAS_MAX:
                self._schemas.pop(next(iter(self._schemas)))
            self._schemas[named] = await self._load(named)
        schema = self._schemas[named]
        if schema is None:
            return message
        problem = schema.check_payload(message.payload)
        if problem is not None:
            self._complain(named, f"offset {message.offset} does not fit schema {named[0]}: {problem}")
            return message
        return dataclasses.replace(message, decoded=_value(schema, message.payload))

    async def _load(self, named: tuple[int, int | None]) -> ParsedSchema | None:
        schema_id, version = named
        try:
            found = await self._registry(pb.GetSchemaRequest(schema_id=schema_id, version=version))
            return parse_schema(kind_of(found.schema_type), definition_in(found.schema_definition))
        except DanubeError as error:
            self._complain(
                named, f"schema {schema_id} cannot be had, payloads are shown as they are: {error.text}"
            )
            return None

    def _complain(self, named: tuple[int, int | None], text: str) -> None:
        if named not in self._complained:
            self._complained.add(named)
            click.secho(text, fg="yellow", err=True)


def definition_in(envelope: bytes) -> bytes:
    """The text as it was registered, out of what the registry answers."""
    try:
        document = json.loads(envelope)
    except ValueError:
        return envelope
    if isinstance(document, dict) and len(document) == 1:
        inner = next(iter(document.values()))
        for name in _RAW_FIELDS:
            if isinstance(inner, dict) and isinstance(inner.get(name), str):
                text: str = inner[name]
                return text.encode()
    return envelope


def _value(schema: ParsedSchema, payload: bytes) -> Any:
    """What a payload that fits its schema says, as JSON knows it; None if its schema says no more than its bytes do."""
    match schema.kind:
        case SchemaKind.JSON_SCHEMA:
            return json.loads(payload)
        case SchemaKind.AVRO:
            from pydanube.cli.avro_values import avro_value  # noqa: PLC0415 - of one format

            return avro_value(schema, payload)
        case SchemaKind.PROTOBUF:
            return _protobuf_value(schema, payload)
        case _:
            return None


def _protobuf_value(schema: ParsedSchema, payload: bytes) -> Any:
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    from pydanube.schemas.protobuf_schema import ProtobufSchema  # noqa: PLC0415

    assert isinstance(schema, ProtobufSchema), "the kind says so"
    message = GetMessageClass(schema.message).FromString(payload)
    return MessageToDict(message, preserving_proto_field_name=True)
