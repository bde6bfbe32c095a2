"""Payloads as their schemas say: the registry is asked once for each schema that messages name."""

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pydanube.cli.admin_connection import AdminConnection
from pydanube.cli.credentials import open_client
from pydanube.cli.messages import ShownMessage
from pydanube.client.schema_codec import Codec, codec_of
from pydanube.kernel.errors import DanubeError
from pydanube.protocol import schema_registry_pb2 as pb

SCHEMAS_MAX: Final = 1000
"""Remembered at a time; a topic has a handful."""

Registry = Callable[[int, int | None], Awaitable[tuple[str, bytes]]]
"""Type and definition of a schema, by its id and version; without a version, of the latest."""


def registry_of(admin: AdminConnection) -> Registry:
    """The registry behind an admin port."""

    async def find(schema_id: int, version: int | None) -> tuple[str, bytes]:
        request = pb.GetSchemaRequest(schema_id=schema_id, version=version)
        found = await admin.call("danube_schema.SchemaRegistry/GetSchema", request, pb.GetSchemaResponse)
        return found.schema_type, _definition(found.schema_definition)

    return find


@asynccontextmanager
async def registry_at(service_addr: str) -> AsyncIterator[Registry]:
    """The registry behind a client port; nothing is dialled before a message names a schema."""
    client = open_client(service_addr)

    async def find(schema_id: int, version: int | None) -> tuple[str, bytes]:
        found = await client.schemas.get(schema_id, version)
        return found.type, found.definition.encode()

    try:
        yield find
    finally:
        await client.close()


class PayloadDecoder:
    """Adds to messages what their payloads say. What cannot be decoded stays as it is, said once for each schema."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._codecs: dict[tuple[int, int | None], Codec | None] = {}
        self._complained: set[tuple[int, int | None]] = set()

    async def decode(self, message: ShownMessage) -> ShownMessage:
        if message.schema_id is None:
            return message
        named = (message.schema_id, message.schema_version)
        if named not in self._codecs:
            if len(self._codecs) >= SCHEMAS_MAX:
                self._codecs.pop(next(iter(self._codecs)))
            self._codecs[named] = await self._load(named)
        codec = self._codecs[named]
        if codec is None:
            return message
        try:
            value = codec.decode(message.payload)
        except DanubeError as error:
            self._complain(named, f"offset {message.offset}: {error.text}")
            return message
        return dataclasses.replace(message, decoded=_as_json(value))

    async def _load(self, named: tuple[int, int | None]) -> Codec | None:
        schema_id, version = named
        try:
            kind, definition = await self._registry(schema_id, version)
            return await asyncio.to_thread(codec_of, kind, definition, schema_id, version or 0)
        except DanubeError as error:
            self._complain(
                named, f"schema {schema_id} cannot be had, payloads are shown as they are: {error.text}"
            )
            return None

    def _complain(self, named: tuple[int, int | None], text: str) -> None:
        if named not in self._complained:
            self._complained.add(named)
            click.secho(text, fg="yellow", err=True)


def _definition(envelope: bytes) -> bytes:
    """The text as it was registered, out of the envelope the registry puts around it."""
    document = json.loads(envelope)
    if not isinstance(document, dict):
        return b""
    fields = next(iter(document.values()))
    text: str = fields.get("raw_schema") or fields.get("raw_proto") or ""
    return text.encode()


def _as_json(value: Any) -> Any:
    """None if the schema says no more than the bytes do."""
    if isinstance(value, bytes | str):
        return None
    if isinstance(value, Message):
        return MessageToDict(value, preserving_proto_field_name=True)
    return json.loads(json.dumps(value, default=_plain))


def _plain(value: Any) -> str:
    """What JSON has no word for: bytes, times, decimals."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
