"""Schemas without a definition, and which schema a message is decoded with."""

from typing import Any

import pyarrow as pa
import pytest

from pydanube.schemas.format import SchemaKind
from pydanube.spark.decoding import FileSchemas, table_schema
from pydanube.spark.decoding.batches import BatchDecoder
from pydanube.spark.decoding.schema_sources import Definition, LoadedSchemas


@pytest.mark.parametrize(
    ("kind", "payload", "expected"),
    [
        ("string", "é".encode(), {"value": "é"}),
        ("string", b"a\xff", "not UTF-8 at byte 1"),
        ("number", b"\xff\xff\xff\xfe", {"value": -2}),
        ("number", b"\x7f" + b"\xff" * 7, {"value": 2**63 - 1}),
        ("number", b"\x01", "a number has 4 or 8 bytes, not 1"),
        ("bytes", b"\xff", {"value": b"\xff"}),
    ],
)
def test_payloads_without_structure(decode_all: Any, kind: str, payload: bytes, expected: Any) -> None:
    assert decode_all(kind, [""], [(1, payload)]) == [expected]


def test_the_columns_of_plain_schemas() -> None:
    columns = {
        kind: table_schema(FileSchemas("", kind)).simpleString() for kind in ("string", "int64", "bytes")
    }
    assert columns == {
        "string": "struct<value:string>",
        "int64": "struct<value:bigint>",
        "bytes": "struct<value:binary>",
    }


def decoded(schemas: LoadedSchemas, *named: tuple[int | None, int | None]) -> list[Any]:
    ids, versions = (pa.array(column, pa.int64()) for column in zip(*named, strict=True))
    made = BatchDecoder(schemas).decode(
        ids, versions, pa.array([b"\x00\x00\x00\x07"] * len(named), pa.binary())
    )
    return [each["error"] or each["row"]["value"] for each in made.to_pylist()]


NUMBER = Definition(SchemaKind.NUMBER, b"")


def test_each_message_is_decoded_by_the_version_it_names() -> None:
    subject = LoadedSchemas(NUMBER, 3, "n", {1: NUMBER, 2: Definition(SchemaKind.STRING, b"")})
    assert decoded(subject, (3, 1), (3, None), (None, None), (0, 0), (4, 1), (3, 9), (3, 2), (3, 1)) == [
        7,
        7,
        "the message names no schema",
        "the message names no schema",
        "schema 4 is not of subject 'n', whose id is 3",
        "subject 'n' has no version 9",
        "version 2 of subject 'n' is string, the table is number",
        7,
    ]


def test_messages_that_name_no_schema_are_decoded_if_told_so() -> None:
    assert decoded(LoadedSchemas(NUMBER, 3, "n", {1: NUMBER}, unnamed_rows="decode"), (None, None)) == [7]


def test_without_a_subject_names_do_not_matter() -> None:
    assert decoded(LoadedSchemas(NUMBER), (None, None), (8, 9)) == [7, 7]


def test_an_empty_batch_is_one(decode_all: Any) -> None:
    assert decode_all("number", [""], []) == []
