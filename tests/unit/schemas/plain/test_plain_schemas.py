"""Payloads without structure, the names of formats and modes, and the modes themselves."""

import json

import pytest

from pydanube.kernel.errors import ErrorCode, Rejected, Status
from pydanube.schemas.compatibility import check_compatibility
from pydanube.schemas.format import (
    CompatibilityMode,
    ParsedSchema,
    SchemaKind,
    kind_of,
    mode_of,
    parse_schema,
)


def plain(kind: SchemaKind, definition: bytes = b"ignored \xff") -> ParsedSchema:
    return parse_schema(kind, definition)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bytes", SchemaKind.BYTES),
        ("STRING", SchemaKind.STRING),
        ("Number", SchemaKind.NUMBER),
        ("int64", SchemaKind.NUMBER),
        ("int", SchemaKind.NUMBER),
        ("float", SchemaKind.NUMBER),
        ("double", SchemaKind.NUMBER),
        ("Avro", SchemaKind.AVRO),
        ("json", SchemaKind.JSON_SCHEMA),
        ("JSON_SCHEMA", SchemaKind.JSON_SCHEMA),
        ("proto", SchemaKind.PROTOBUF),
        ("protobuf", SchemaKind.PROTOBUF),
    ],
)
def test_a_format_has_several_names_in_any_case(name: str, kind: SchemaKind) -> None:
    assert kind_of(name) is kind


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(Rejected, match=r"'xml'.*avro, json_schema, protobuf") as refused:
        kind_of("xml")
    assert refused.value.code is ErrorCode.SCHEMA_INVALID
    assert refused.value.status is Status.INTERNAL


def test_a_mode_is_named_in_any_case() -> None:
    assert mode_of("Backward_Transitive") is CompatibilityMode.BACKWARD_TRANSITIVE
    with pytest.raises(Rejected, match="sideways") as refused:
        mode_of("sideways")
    assert refused.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize("kind", [SchemaKind.BYTES, SchemaKind.STRING, SchemaKind.NUMBER])
def test_every_version_of_a_plain_schema_is_the_same(kind: SchemaKind) -> None:
    one, other = plain(kind, b"one"), plain(kind, b"other")
    assert one.fingerprint == other.fingerprint == kind.value
    assert one.problems_reading(other) == []


def test_a_plain_definition_is_bounded_too() -> None:
    with pytest.raises(Rejected, match="1048577 bytes"):
        plain(SchemaKind.BYTES, bytes(2**20 + 1))


@pytest.mark.parametrize(
    ("kind", "payload", "fits"),
    [
        (SchemaKind.BYTES, b"\xff\x00", True),
        (SchemaKind.STRING, "ä".encode(), True),
        (SchemaKind.STRING, b"", True),
        (SchemaKind.STRING, b"a\xff", False),
        (SchemaKind.NUMBER, bytes(4), True),
        (SchemaKind.NUMBER, bytes(8), True),
        (SchemaKind.NUMBER, bytes(5), False),
        (SchemaKind.NUMBER, b"", False),
    ],
)
def test_payloads(kind: SchemaKind, payload: bytes, fits: bool) -> None:
    assert (plain(kind).check_payload(payload) is None) is fits


def test_another_format_is_never_compatible() -> None:
    problems = check_compatibility(
        CompatibilityMode.BACKWARD, plain(SchemaKind.STRING), [plain(SchemaKind.BYTES)]
    )
    assert [problem.rule for problem in problems] == ["kind_changed"]
    assert (
        check_compatibility(CompatibilityMode.NONE, plain(SchemaKind.STRING), [plain(SchemaKind.BYTES)]) == []
    )


def record(*names: str, defaults: bool) -> ParsedSchema:
    fields = [{"name": name, "type": "int"} | ({"default": 0} if defaults else {}) for name in names]
    return parse_schema(
        SchemaKind.AVRO, json.dumps({"type": "record", "name": "R", "fields": fields}).encode()
    )


A, AB, ABC = (record(*names, defaults=False) for names in ("a", "ab", "abc"))
WITH_DEFAULTS = record("a", "b", "c", defaults=True)


@pytest.mark.parametrize(
    ("mode", "versions", "places"),
    [
        ("none", [A], []),
        ("backward", [A], ["b", "c"]),
        ("backward", [A, ABC], []),
        ("backward_transitive", [A, ABC], ["b", "c"]),
        ("forward", [A], []),
        ("forward", [WITH_DEFAULTS], []),
        ("full", [A], ["b", "c"]),
        ("full_transitive", [A, AB], ["b", "c", "c"]),
        ("backward", [], []),
    ],
)
def test_a_mode_says_which_versions_are_compared(
    mode: str, versions: list[ParsedSchema], places: list[str]
) -> None:
    problems = check_compatibility(CompatibilityMode(mode), ABC, versions)
    assert [problem.path for problem in problems] == places


def test_forward_asks_whether_old_readers_understand_new_data() -> None:
    problems = check_compatibility(CompatibilityMode.FORWARD_TRANSITIVE, A, [AB, ABC, WITH_DEFAULTS])
    assert [problem.path for problem in problems] == ["b", "b", "c"]
    assert problems[0].text.startswith("forward: version 1 cannot read data of the new schema at 'b':")


def test_texts_name_the_versions_that_are_left() -> None:
    problems = check_compatibility(CompatibilityMode.BACKWARD, AB, [A, A], numbers=[3, 7])
    assert [problem.text.split(" at ")[0] for problem in problems] == [
        "backward: the new schema cannot read data of version 7"
    ]
