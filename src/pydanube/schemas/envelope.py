"""What a reader of the registry receives as definition: Danube's JSON envelope around the registered text.

A schema that refers to others lists its references in one more member, which readers that do not know it skip.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from pydanube.schemas.format import SchemaKind
from pydanube.schemas.subjects import Reference

PLAIN: Final = {SchemaKind.BYTES: "Bytes", SchemaKind.STRING: "String", SchemaKind.NUMBER: "Number"}

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


def encode_envelope(
    kind: SchemaKind,
    definition: bytes,
    *,
    fingerprint: str,
    message_name: str,
    references: Sequence[Reference] = (),
) -> bytes:
    """`{"Avro": {"raw_schema": …, "fingerprint": …}}` and its like, or just `"Bytes"`."""
    text = definition_text(definition)
    fields: dict[str, Any]
    match kind:
        case SchemaKind.AVRO:
            name, fields = "Avro", {"raw_schema": text, "fingerprint": fingerprint}
        case SchemaKind.JSON_SCHEMA:
            name, fields = "JsonSchema", {"raw_schema": text, "fingerprint": fingerprint}
        case SchemaKind.PROTOBUF:
            name = "Protobuf"
            fields = {"raw_proto": text, "message_name": message_name, "fingerprint": fingerprint}
        case _:
            return msgspec.json.encode(PLAIN[kind])
    if references:
        fields["references"] = references
    return msgspec.json.encode({name: fields})


def definition_text(definition: bytes) -> str:
    """The definition itself, or its base64 if it is not text but descriptors."""
    if not _CONTROL.search(definition):
        try:
            return definition.decode()
        except UnicodeDecodeError:
            pass
    return b64encode(definition).decode()
