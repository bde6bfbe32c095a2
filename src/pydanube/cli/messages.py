"""Messages on stdout: text for people, JSON lines or YAML documents for programs."""

import base64
import json
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.tables import show_record, time_text

if TYPE_CHECKING:
    from pydanube.client import Message

SHOWN_BYTES_MAX: Final = 1024

messages_output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "yaml"]),
    default="text",
    show_default=True,
    help="Text for people; one JSON object a line, or one YAML document each, for programs.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownMessage:
    """A message from anywhere."""

    payload: bytes
    topic: str
    offset: int | None
    """None on a non-reliable topic."""
    producer: str
    publish_time_ms: int
    attributes: dict[str, str]
    key: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    decoded: Any = field(default=None)
    """What the payload says by its schema; None if that is not known."""


def native_message(message: "Message") -> ShownMessage:
    """A message of the native client."""
    return ShownMessage(
        payload=message.payload,
        topic=message.topic,
        offset=message.offset,
        producer=message.producer_name,
        publish_time_ms=message.publish_time_ms,
        attributes=message.attributes,
        key=message.key,
        schema_id=message.schema_id,
        schema_version=message.schema_version,
    )


def message_document(message: ShownMessage) -> dict[str, object]:
    """Every field; a payload that is no text is in base64."""
    fields: dict[str, object] = {
        "topic": message.topic,
        "offset": message.offset,
        "producer": message.producer,
        "publish_time": message.publish_time_ms,
        "attributes": message.attributes,
    }
    if message.key is not None:
        fields["routing_key"] = message.key
    if message.schema_id is not None:
        fields["schema_id"] = message.schema_id
    if message.schema_version is not None:
        fields["schema_version"] = message.schema_version
    if message.decoded is not None:
        fields["decoded"] = message.decoded
    try:
        fields["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        fields["payload_base64"] = base64.b64encode(message.payload).decode()
    return fields


def show_message(message: ShownMessage, output: str) -> None:
    """One message: a line of what is known about it and its payload, or a record of all that."""
    if output != "text":
        show_record(message_document(message), output)
        return
    head = [time_text(message.publish_time_ms / 1000)]
    if message.offset is not None:
        head.append(f"offset {message.offset}")
    head.append(printable(message.producer))
    if message.key is not None:
        head.append(f"key {printable(message.key)}")
    head += [f"{printable(name)}={printable(value)}" for name, value in sorted(message.attributes.items())]
    click.secho("  ".join(head), dim=True)
    click.echo(shown_payload(message))


def shown_payload(message: ShownMessage) -> str:
    """The decoded payload as JSON, or the payload as text, cut at some length."""
    if message.decoded is not None:
        return printable(json.dumps(message.decoded, indent=2, ensure_ascii=False, default=str))
    size = len(message.payload)
    return payload_text(message.payload[:SHOWN_BYTES_MAX]) + ("…" if size > SHOWN_BYTES_MAX else "")


def payload_text(payload: bytes) -> str:
    """The payload as text if it is text; a cut in the middle of a character does not make it binary."""
    try:
        return printable(payload.decode())
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and len(payload) == SHOWN_BYTES_MAX:
            return printable(payload[: error.start].decode())
        return f"<{len(payload)} bytes, not text>"


def printable(text: str) -> str:
    """A terminal must not obey what a message says; a pipe gets the text as it is."""
    if not sys.stdout.isatty():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
