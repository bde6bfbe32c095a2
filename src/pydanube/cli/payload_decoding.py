"""Payloads as their schemas say, or as one version says that is asked for."""

import dataclasses
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import click
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from pydanube.cli.credentials import open_client
from pydanube.cli.messages import ShownMessage
from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected

if TYPE_CHECKING:
    from pydanube.client.pinned_schema import PinnedSchema
    from pydanube.client.schema_codec import Codec
    from pydanube.client.schemas import Schemas

SCHEMAS_MAX: Final = 1000
"""Remembered at a time; a topic has a handful."""

schema_version_option: Final = click.option(
    "--schema-version",
    type=click.IntRange(1),
    metavar="N",
    help="Read all messages with version N of the topic's schema, whatever version they were written with.",
)


@asynccontextmanager
async def schemas_at(service_addr: str) -> "AsyncIterator[Schemas]":
    """The registry behind a client port; nothing is dialled before it is asked something."""
    client = open_client(service_addr)
    try:
        yield client.schemas
    finally:
        await client.close()


async def payload_decoder(
    schemas: "Schemas", topic: str, *, raw: bool, schema_version: int | None
) -> "PayloadDecoder | None":
    """What `--raw` and `--schema-version` ask for; None to leave payloads as they are.

    Raises:
        Rejected: the topic follows no subject, or that has no such version.
    """
    if raw and schema_version is not None:
        raise click.UsageError("--raw and --schema-version exclude each other")
    if raw:
        return None
    if schema_version is None:
        return PayloadDecoder(schemas)
    from pydanube.client.schema_records import SchemaRef  # noqa: PLC0415 - slow to load

    subject = (await schemas.topic_config(topic)).subject
    if subject is None:
        raise Rejected(
            f"{topic} follows no schema subject, so there is no version to read it with: give it one by "
            "`danube topics configure-schema`, or leave out --schema-version",
            ErrorCode.SUBJECT_UNKNOWN,
        )
    return PayloadDecoder(schemas, await schemas.pin(SchemaRef(subject, version=schema_version)))


class PayloadDecoder:
    """Adds to messages what their payloads say. What cannot be decoded stays as it is: with a pinned version this is
    said of every message, else once for each schema.
    """

    def __init__(self, schemas: "Schemas", pinned: "PinnedSchema | None" = None) -> None:
        self._schemas = schemas
        self._pinned = pinned
        self._codecs: dict[tuple[int, int | None], Codec | None] = {}
        self._complained: set[tuple[int, int | None]] = set()

    async def decode(self, message: ShownMessage) -> ShownMessage:
        if self._pinned is not None:
            return await self._read(self._pinned, message)
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
            self._complain_once(named, f"offset {message.offset}: {error.text}")
            return message
        return dataclasses.replace(message, decoded=_as_json(value))

    async def _read(self, pinned: "PinnedSchema", message: ShownMessage) -> ShownMessage:
        try:
            value = await pinned.read(message.schema_id, message.schema_version, message.payload)
        except DanubeError as error:
            _complain(f"offset {message.offset} is shown as it is: {error.text}")
            return message
        return dataclasses.replace(message, decoded=_as_json(value))

    async def _load(self, named: tuple[int, int | None]) -> "Codec | None":
        try:
            return await self._schemas.codec_by_id(*named)
        except DanubeError as error:
            self._complain_once(
                named, f"schema {named[0]} cannot be had, payloads are shown as they are: {error.text}"
            )
            return None

    def _complain_once(self, named: tuple[int, int | None], text: str) -> None:
        if named not in self._complained:
            self._complained.add(named)
            _complain(text)


def _complain(text: str) -> None:
    click.secho(text, fg="yellow", err=True)


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
