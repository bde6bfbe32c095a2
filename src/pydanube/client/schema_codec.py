"""Payloads as values and back, as a schema says; also as one version reads what another one wrote."""

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pydanube.client.avro_defaults import type_defaults
from pydanube.kernel.errors import ErrorCode, Rejected

if TYPE_CHECKING:
    from pydanube.schemas.format import Incompatibility

NUMBER_BYTES: Final = 8
PROBLEMS_NAMED_MAX: Final = 3

NO_REFERENCES: Final[Mapping[str, bytes]] = {}

# Of these a reader may know nothing in a datum that does not use them: the datum decides, as Avro has it.
_DECIDED_BY_DATUM: Final = frozenset({"enum_symbol_missing", "union_branch_missing"})


class Codec(ABC):
    """Of one version of a schema. Values are checked against the schema when they are encoded."""

    def __init__(self, schema_id: int, version: int) -> None:
        self.schema_id: Final = schema_id
        self.version: Final = version

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """The payload for a value; Rejected if the schema does not allow it."""

    @abstractmethod
    def decode(self, payload: bytes) -> Any:
        """The value of a payload; Rejected if it is none of this schema."""

    def reading(self, writer: "Codec") -> Callable[[bytes], Any]:
        """How to decode a payload that was written with `writer`, a version of the same subject, as this one has it.

        What is returned raises Rejected: SCHEMA_INCOMPATIBLE for every payload if this version cannot read what the
        other one writes, PAYLOAD_INVALID for one that does not fit.
        """
        if writer.version == self.version:
            return self.decode
        if type(writer) is not type(self):
            return self._unreadable(writer, "their types differ")
        return self._reading(writer)

    def _reading(self, writer: Any) -> Callable[[bytes], Any]:
        """The same for another version of the same type: nothing of it is needed, unless a format says so."""
        return self.decode

    def _unreadable(self, writer: "Codec", why: str) -> Callable[[bytes], NoReturn]:
        def refuse(payload: bytes) -> NoReturn:
            raise Rejected(
                f"the message was written with version {writer.version} of schema {self.schema_id}, which version "
                f"{self.version} cannot read: {why}",
                ErrorCode.SCHEMA_INCOMPATIBLE,
            )

        return refuse


def codec_of(
    kind: str,
    definition: bytes,
    schema_id: int,
    version: int,
    references: Mapping[str, bytes] = NO_REFERENCES,
) -> Codec:
    """The codec for a schema as it was registered.

    `references` are the definitions it refers to by name, what one of them refers to before it.
    """
    make = _CODECS.get(kind)
    if make is None:
        raise Rejected(
            f"schema {schema_id} is of type {kind!r}, which this client does not know: upgrade it",
            ErrorCode.SCHEMA_INVALID,
        )
    return make(definition, schema_id, version, references)


class _Bytes(Codec):
    def __init__(
        self,
        definition: bytes,
        schema_id: int,
        version: int,
        references: Mapping[str, bytes] = NO_REFERENCES,
    ) -> None:
        super().__init__(schema_id, version)

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise self._refuse(f"a value of type bytes, not {type(value).__name__}")
        return bytes(value)

    def decode(self, payload: bytes) -> Any:
        return payload

    def _refuse(self, expected: str) -> Rejected:
        return Rejected(f"schema {self.schema_id} wants {expected}", ErrorCode.PAYLOAD_INVALID)


class _String(_Bytes):
    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise self._refuse(f"text, not {type(value).__name__}")
        return value.encode()

    def decode(self, payload: bytes) -> Any:
        try:
            return payload.decode()
        except UnicodeDecodeError as error:
            raise self._refuse(f"text in UTF-8: {error}") from error


class _Number(_Bytes):
    """Integers, big-endian: the registry's type says neither more nor less than 4 or 8 bytes."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
            raise self._refuse(f"an integer of {NUMBER_BYTES} bytes, not {value!r}")
        return value.to_bytes(NUMBER_BYTES, "big", signed=True)

    def decode(self, payload: bytes) -> Any:
        if len(payload) not in (4, NUMBER_BYTES):
            raise self._refuse(f"a number of 4 or {NUMBER_BYTES} bytes, not {len(payload)}")
        return int.from_bytes(payload, "big", signed=True)


class _Checked(_Bytes):
    """Formats whose payloads are checked by the same code the broker checks them with."""

    kind: str

    def __init__(
        self,
        definition: bytes,
        schema_id: int,
        version: int,
        references: Mapping[str, bytes] = NO_REFERENCES,
    ) -> None:
        super().__init__(definition, schema_id, version)
        from pydanube.schemas.format import kind_of, parse_schema  # noqa: PLC0415 - with the first schema

        self._schema = parse_schema(kind_of(self.kind), definition, references=references)

    def _checked(self, payload: bytes) -> bytes:
        problem = self._schema.check_payload(payload)
        if problem is not None:
            raise Rejected(
                f"the payload does not fit version {self.version} of schema {self.schema_id}: {problem}",
                ErrorCode.PAYLOAD_INVALID,
            )
        return payload

    def _problems_reading(self, writer: "_Checked") -> "list[Incompatibility]":
        return self._schema.problems_reading(writer._schema)


class _Json(_Checked):
    """One version reads what another wrote if the document fits it, whoever wrote it."""

    kind = "json_schema"

    def encode(self, value: Any) -> bytes:
        try:
            payload = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refuse(f"a value JSON can hold: {error}") from error
        return self._checked(payload.encode())

    def decode(self, payload: bytes) -> Any:
        return json.loads(self._checked(payload))


class _Avro(_Checked):
    kind = "avro"

    def __init__(
        self,
        definition: bytes,
        schema_id: int,
        version: int,
        references: Mapping[str, bytes] = NO_REFERENCES,
    ) -> None:
        super().__init__(definition, schema_id, version, references)
        try:
            import fastavro  # noqa: PLC0415 - of one format
        except ImportError as error:
            raise Rejected("Avro needs the package fastavro: pip install 'pydanube[avro]'") from error
        self._avro = fastavro
        named: dict[str, Any] = {}
        try:
            for text in references.values():
                fastavro.parse_schema(json.loads(text), named)
            self._parsed = _final(fastavro.parse_schema(json.loads(definition), named), named)
            type_defaults(fastavro, named)
        except Exception as error:  # the library raises whatever its inner loop meets
            raise Rejected(
                f"version {version} of schema {schema_id} cannot be used for values here: {error!r}",
                ErrorCode.SCHEMA_INVALID,
            ) from error

    def encode(self, value: Any) -> bytes:
        payload = io.BytesIO()
        try:
            self._avro.schemaless_writer(payload, self._parsed, value)
        except Exception as error:  # the library raises whatever its inner loop meets
            raise self._refuse(f"a value of its type: {error!r}") from error
        return self._checked(payload.getvalue())

    def decode(self, payload: bytes) -> Any:
        """One datum; of a container file, all of them in a list."""
        return self._resolved(self._checked(payload), self._parsed, None)

    def _reading(self, writer: "_Avro") -> Callable[[bytes], Any]:
        problems = self._problems_reading(writer)
        if any(problem.rule not in _DECIDED_BY_DATUM for problem in problems):
            return self._unreadable(writer, _told(problems))

        def read(payload: bytes) -> Any:
            try:
                return self._resolved(writer._checked(payload), writer._parsed, self._parsed)
            except Rejected:
                raise
            except Exception as error:  # the library raises whatever its inner loop meets
                raise Rejected(
                    f"the message was written with version {writer.version} of schema {self.schema_id} and cannot be "
                    f"read with version {self.version}: {_told(problems) or repr(error)}",
                    ErrorCode.PAYLOAD_INVALID,
                ) from error

        return read

    def _resolved(self, payload: bytes, writer: Any, reader: Any) -> Any:
        data = io.BytesIO(payload)
        if payload.startswith(b"Obj\x01"):
            # The container says itself what it was written with.
            return list(self._avro.reader(data, reader or writer))
        return self._avro.schemaless_reader(data, writer, reader)


def _final(parsed: Any, named: dict[str, Any]) -> Any:
    """The same, marked for the library as parsed: it would do so again, and then refuse defaults that are values.

    Names of references become declarations, which only these keep the meaning of.
    """
    if isinstance(parsed, list):
        return [_final(each, named) for each in parsed]
    declared = named.get(parsed) if isinstance(parsed, str) else parsed
    if declared is None:
        return parsed
    return {**declared, "__fastavro_parsed": True, "__named_schemas": named}


def _told(problems: "list[Incompatibility]") -> str:
    return "; ".join(
        f"at '{problem.path}': {problem.text}" if problem.path else problem.text
        for problem in problems[:PROBLEMS_NAMED_MAX]
    )


class _Protobuf(_Checked):
    """Values are messages; a mapping is taken as one in the JSON form of Protobuf."""

    kind = "protobuf"

    def __init__(
        self,
        definition: bytes,
        schema_id: int,
        version: int,
        references: Mapping[str, bytes] = NO_REFERENCES,
    ) -> None:
        super().__init__(definition, schema_id, version, references)
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415 - of one format

        from pydanube.schemas.protobuf_schema import ProtobufSchema  # noqa: PLC0415

        assert isinstance(self._schema, ProtobufSchema), "the kind says so"
        self._message = GetMessageClass(self._schema.message)

    def encode(self, value: Any) -> bytes:
        from google.protobuf.json_format import ParseDict, ParseError  # noqa: PLC0415
        from google.protobuf.message import Message  # noqa: PLC0415

        if not isinstance(value, Message):
            try:
                value = ParseDict(value, self._message())
            except (ParseError, TypeError, AttributeError) as error:
                raise self._refuse(f"a {self._message.DESCRIPTOR.full_name}: {error}") from error
        return self._checked(value.SerializeToString())

    def decode(self, payload: bytes) -> Any:
        return self._message.FromString(self._checked(payload))

    def _reading(self, writer: "_Protobuf") -> Callable[[bytes], Any]:
        # A field that changed its type may parse and be something else: the schemas decide, not the bytes.
        problems = self._problems_reading(writer)
        return self._unreadable(writer, _told(problems)) if problems else self.decode


_CODECS: Final[dict[str, Callable[[bytes, int, int, Mapping[str, bytes]], Codec]]] = {
    "bytes": _Bytes,
    "string": _String,
    "number": _Number,
    "json_schema": _Json,
    "avro": _Avro,
    "protobuf": _Protobuf,
}
