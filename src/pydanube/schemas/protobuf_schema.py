"""Protobuf schemas: a `.proto` text, or a FileDescriptorSet as bytes or base64, and one message of it.

Payloads are that message: the first one of the file, unless a comment names another:

    // danube:message=shop.Order
"""

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from pydanube.schemas.format import NO_REFERENCES, Incompatibility, ParsedSchema, SchemaKind, other_kind
from pydanube.schemas.limits import NODES_MAX, REFERENCES_MAX, check_sizes, refuse
from pydanube.schemas.protobuf_compatibility import problems_reading
from pydanube.schemas.protobuf_compiler import check_descriptors, compile_proto
from pydanube.schemas.protobuf_succession import problems_succeeding
from pydanube.schemas.protobuf_unfolding import UNFOLDED_BYTES_MAX, Unfolding

FILES_MAX: Final = REFERENCES_MAX + 32
"""The definition, its references, and what Google's well-known types bring along."""
MESSAGES_NAMED_MAX: Final = 10
MISFIT_SEARCH_BYTES_MAX: Final = 64 * 1024
"""Payloads up to here are searched for fields of another wire type: each unknown field costs an object."""

_CHOSEN_MESSAGE = re.compile(r"^[ \t]*//[ \t]*danube:message=([\w.]+)[ \t]*\r?$", re.MULTILINE)
_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]+=?=?\s*")
# Bytes that appear in descriptors and in no text file: most control characters.
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")


class ProtobufSchema:
    """One message type with all it is made of, in a descriptor pool of its own."""

    kind = SchemaKind.PROTOBUF
    quick_bytes_max = MISFIT_SEARCH_BYTES_MAX

    def __init__(
        self, text: str, message: Descriptor, references: Mapping[str, bytes] = NO_REFERENCES
    ) -> None:
        self.text = text
        self.message = message
        self.message_name: str = message.full_name
        self.fingerprint = "sha256:" + _content_hash(text, references)
        self._from_bytes = GetMessageClass(message).FromString
        self._unfolding = Unfolding(message)
        self._has_required = _has_required(message)

    def problems_reading(self, written: ParsedSchema) -> list[Incompatibility]:
        if not isinstance(written, ProtobufSchema):
            return other_kind(self, written)
        return problems_reading(self.message, written.message)

    def problems_succeeding(self, older: ParsedSchema) -> list[Incompatibility]:
        """What this version takes away from `older` without reserving it, so that a later one could misuse it."""
        return problems_succeeding(self.message, older.message) if isinstance(older, ProtobufSchema) else []

    def check_payload(self, payload: bytes) -> str | None:
        if not self._unfolding.is_harmless(payload):
            return f"a {self.message_name} of {len(payload)} bytes that unfolds to more than {UNFOLDED_BYTES_MAX >> 20} MiB"
        try:
            message = self._from_bytes(payload)
        except DecodeError:
            return f"not a {self.message_name}: the {len(payload)} bytes do not parse as this message"
        if self._has_required and not message.IsInitialized():
            return f"not a whole {self.message_name}: required fields are missing"
        if len(payload) > MISFIT_SEARCH_BYTES_MAX:
            return None
        unknown = UnknownFieldSet(message)
        return self._misfit(unknown) if len(unknown) else None

    def _misfit(self, unknown: UnknownFieldSet) -> str | None:
        """A field of a later version may be unknown; one that this version declares otherwise may not."""
        declared = self.message.fields_by_number
        for field in (unknown[index] for index in range(len(unknown))):
            known = declared.get(field.field_number)
            # A closed enum's field lands here with every number the enum lacks.
            if known is not None and known.type != FieldDescriptor.TYPE_ENUM:
                return (
                    f"not a {self.message_name}: field {known.number} ({known.name}) is written with wire type "
                    f"{field.wire_type}, which is not how the schema declares it"
                )
        return None


def parse_protobuf(definition: bytes, references: Mapping[str, bytes] = NO_REFERENCES) -> ProtobufSchema:
    """Compile or load a definition, or raise `Rejected`. Blocks for the time of a process start."""
    check_sizes(definition, references)
    given = _given_descriptors(definition)
    if given is not None:
        if references:
            raise refuse(
                "a FileDescriptorSet brings its imports along: give it without references, or the .proto text"
            )
        # Bytes and their base64 are one definition; base64 is the form that fits into text.
        descriptors = check_descriptors(given, _root_name(given))
        return ProtobufSchema(b64encode(given).decode(), _load(descriptors, None))
    try:
        text = definition.decode()
    except UnicodeDecodeError as error:
        raise refuse(f"not .proto text: not UTF-8 at byte {error.start}") from error
    chosen = _CHOSEN_MESSAGE.search(text)
    message = _load(compile_proto(definition, references), chosen[1] if chosen else None)
    return ProtobufSchema(text, message, references)


def _content_hash(text: str, references: Mapping[str, bytes]) -> str:
    digest = sha256(text.encode())
    for name in sorted(references):
        digest.update(sha256(name.encode()).digest() + sha256(references[name]).digest())
    return digest.hexdigest()


def _given_descriptors(definition: bytes) -> bytes | None:
    """The bytes of a FileDescriptorSet if the definition is one or its base64, None if it is text."""
    if _BINARY.search(definition):
        return definition
    if _BASE64.fullmatch(definition):
        try:
            return b64decode(b"".join(definition.split()), validate=True)
        except binascii.Error:
            return None
    return None


def _root_name(given: bytes) -> str:
    """The last file: protoc writes a file after everything it imports."""
    try:
        files = FileDescriptorSet.FromString(given).file
    except DecodeError as error:
        raise refuse(
            "neither .proto text nor a FileDescriptorSet: the bytes do not parse as descriptors"
        ) from error
    if not files:
        raise refuse("the FileDescriptorSet holds no file: make it with protoc --include_imports")
    if len(files) > FILES_MAX:
        raise refuse(f"{len(files)} files in the FileDescriptorSet: at most {FILES_MAX} allowed")
    name = files[-1].name
    return name if isinstance(name, str) else repr(name)


def _load(checked: bytes, chosen: str | None) -> Descriptor:
    """The message that payloads are, out of a private pool that holds nothing else."""
    files = FileDescriptorSet.FromString(checked).file
    _check_nodes(files)
    _check_text(files)
    pool = DescriptorPool()
    for file in files:
        try:
            pool.AddSerializedFile(file.SerializeToString())
        except TypeError as error:
            raise refuse(f"descriptors of {file.name!r} cannot be used: {error}") from error
    return _find_message(pool, files[-1], chosen)


def _check_text(files: Sequence[Message]) -> None:
    """Refuse text that is not UTF-8: descriptors are older than that rule and hand it over as bytes."""
    waiting = list(files)
    while waiting:
        for field, value in waiting.pop().ListFields():
            values = value if field.is_repeated else [value]
            if field.message_type is not None:
                waiting += values
            elif field.type == FieldDescriptor.TYPE_STRING and not all(
                isinstance(one, str) for one in values
            ):
                raise refuse(f"the definition holds text that is not UTF-8 ({field.full_name})")


def _find_message(pool: DescriptorPool, root: FileDescriptorProto, chosen: str | None) -> Descriptor:
    package = root.package + "." if root.package else ""
    names = [package + message.name for message in root.message_type]
    if chosen is None:
        if not names:
            raise refuse("the definition declares no message: a schema describes one")
        return pool.FindMessageTypeByName(names[0])
    for name in (chosen, package + chosen):
        try:
            return pool.FindMessageTypeByName(name)
        except KeyError:
            continue
    known = ", ".join(names[:MESSAGES_NAMED_MAX]) or "none"
    raise refuse(f"danube:message names {chosen[:200]!r}, which is not declared; messages here: {known}")


def _check_nodes(files: Sequence[FileDescriptorProto]) -> None:
    count = 0
    waiting: list[DescriptorProto] = []
    for file in files:
        if file.name.startswith("google/protobuf/"):
            continue  # imported from the compiler's own files, not the author's choice
        count += len(file.extension) + sum(1 + len(enum.value) for enum in file.enum_type)
        waiting += file.message_type
    while waiting:
        message = waiting.pop()
        count += 1 + len(message.field) + len(message.extension)
        count += sum(1 + len(enum.value) for enum in message.enum_type)
        waiting += message.nested_type
    if count > NODES_MAX:
        raise refuse(f"{count} messages, fields and enum values: a schema may have at most {NODES_MAX}")


def _has_required(message: Descriptor) -> bool:
    """Whether any message reachable from this one has a required field."""
    seen = {message.full_name}
    waiting = [message]
    while waiting:
        for field in waiting.pop().fields:
            if field.is_required:
                return True
            inner = field.message_type
            if inner is not None and inner.full_name not in seen:
                seen.add(inner.full_name)
                waiting.append(inner)
    return False
