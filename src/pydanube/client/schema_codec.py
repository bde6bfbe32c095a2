"""Payloads as values and back, as a schema says."""

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from pydanube.kernel.errors import ErrorCode, Rejected

NUMBER_BYTES: Final = 8


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


def codec_of(kind: str, definition: bytes, schema_id: int, version: int) -> Codec:
    """The codec for a schema as it was registered."""
    make = _CODECS.get(kind)
    if make is None:
        raise Rejected(
            f"schema {schema_id} is of type {kind!r}, which this client does not know: upgrade it",
            ErrorCode.SCHEMA_INVALID,
        )
    return make(definition, schema_id, version)


class _Bytes(Codec):
    def __init__(self, definition: bytes, schema_id: int, version: int) -> None:
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

    def __init__(self, kind: str, definition: bytes, schema_id: int, version: int) -> None:
        super().__init__(definition, schema_id, version)
        from pydanube.schemas.format import kind_of, parse_schema  # noqa: PLC0415 - with the first schema

        self._schema = parse_schema(kind_of(kind), definition)

    def _checked(self, payload: bytes) -> bytes:
        problem = self._schema.check_payload(payload)
        if problem is not None:
            raise Rejected(
                f"the payload does not fit version {self.version} of schema {self.schema_id}: {problem}",
                ErrorCode.PAYLOAD_INVALID,
            )
        return payload


class _Json(_Checked):
    def __init__(self, definition: bytes, schema_id: int, version: int) -> None:
        super().__init__("json_schema", definition, schema_id, version)

    def encode(self, value: Any) -> bytes:
        try:
            payload = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise self._refuse(f"a value JSON can hold: {error}") from error
        return self._checked(payload.encode())

    def decode(self, payload: bytes) -> Any:
        return json.loads(self._checked(payload))


class _Avro(_Checked):
    def __init__(self, definition: bytes, schema_id: int, version: int) -> None:
        super().__init__("avro", definition, schema_id, version)
        try:
            import fastavro  # noqa: PLC0415 - of one format
        except ImportError as error:
            raise Rejected("Avro needs the package fastavro: pip install 'pydanube[avro]'") from error
        self._avro = fastavro
        self._parsed = fastavro.parse_schema(json.loads(definition))

    def encode(self, value: Any) -> bytes:
        payload = io.BytesIO()
        try:
            self._avro.schemaless_writer(payload, self._parsed, value)
        except Exception as error:  # the library raises whatever its inner loop meets
            raise self._refuse(f"a value of its type: {error!r}") from error
        return self._checked(payload.getvalue())

    def decode(self, payload: bytes) -> Any:
        """One datum; of a container file, all of them in a list."""
        data = io.BytesIO(self._checked(payload))
        if payload.startswith(b"Obj\x01"):
            return list(self._avro.reader(data, self._parsed))
        return self._avro.schemaless_reader(data, self._parsed, None)


class _Protobuf(_Checked):
    """Values are messages; a mapping is taken as one in the JSON form of Protobuf."""

    def __init__(self, definition: bytes, schema_id: int, version: int) -> None:
        super().__init__("protobuf", definition, schema_id, version)
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


_CODECS: Final[dict[str, Callable[[bytes, int, int], Codec]]] = {
    "bytes": _Bytes,
    "string": _String,
    "number": _Number,
    "json_schema": _Json,
    "avro": _Avro,
    "protobuf": _Protobuf,
}
