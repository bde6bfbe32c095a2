"""What a reader of the registry receives as definition: Danube's JSON envelope around the registered text."""

import re
from base64 import b64encode
from typing import Final

import msgspec

from pydanube.schemas.format import SchemaKind

PLAIN: Final = {SchemaKind.BYTES: "Bytes", SchemaKind.STRING: "String", SchemaKind.NUMBER: "Number"}

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


def encode_envelope(kind: SchemaKind, definition: bytes, *, fingerprint: str, message_name: str) -> bytes:
    """`{"Avro": {"raw_schema": …, "fingerprint": …}}` and its like, or just `"Bytes"`."""
    text = definition_text(definition)
    match kind:
        case SchemaKind.AVRO:
            return msgspec.json.encode({"Avro": {"raw_schema": text, "fingerprint": fingerprint}})
        case SchemaKind.JSON_SCHEMA:
            return msgspec.json.encode({"JsonSchema": {"raw_schema": text, "fingerprint": fingerprint}})
        case SchemaKind.PROTOBUF:
            fields = {"raw_proto": text, "message_name": message_name, "fingerprint": fingerprint}
            return msgspec.json.encode({"Protobuf": fields})
        case _:
            return msgspec.json.encode(PLAIN[kind])


def definition_text(definition: bytes) -> str:
    """The definition itself, or its base64 if it is not text but descriptors."""
    if not _CONTROL.search(definition):
        try:
            return definition.decode()
        except UnicodeDecodeError:
            pass
    return b64encode(definition).decode()
