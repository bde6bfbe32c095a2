"""Every change of the table breaks what the table says, and nothing else."""

from pydanube.schemas.format import Incompatibility, SchemaKind, parse_schema
from pydanube.schemas.protobuf_schema import parse_protobuf


def rules(problems: list[Incompatibility]) -> list[str]:
    return [f"{problem.path}: {problem.rule}" for problem in problems]


def test_new_readers_of_old_data(change) -> None:
    old, new = parse_protobuf(change.old.encode()), parse_protobuf(change.new.encode())
    assert rules(new.problems_reading(old)) == change.backward


def test_old_readers_of_new_data(change) -> None:
    old, new = parse_protobuf(change.old.encode()), parse_protobuf(change.new.encode())
    assert rules(old.problems_reading(new)) == change.forward


def test_what_a_new_version_takes_away(change) -> None:
    old, new = parse_protobuf(change.old.encode()), parse_protobuf(change.new.encode())
    assert rules(new.problems_succeeding(old)) == change.removed


def test_a_reason_names_both_sides_and_what_to_do(proto) -> None:
    old, new = (
        parse_protobuf(proto("message Order { string id = 1; }")),
        parse_protobuf(proto("message Order { int64 id = 1; }")),
    )
    [problem] = new.problems_reading(old)
    assert "int64 for the reader" in problem.text
    assert "string in the data" in problem.text
    assert "keep the type" in problem.text


def test_another_format_cannot_be_read(proto) -> None:
    schema = parse_protobuf(proto("message Order { string id = 1; }"))
    text = parse_schema(SchemaKind.STRING, b"")
    assert rules(schema.problems_reading(text)) == [": kind_changed"]


def test_references_are_followed(proto) -> None:
    definition = proto('import "money.proto"; message Order { money.Money price = 1; }')
    old = parse_protobuf(
        definition, {"money.proto": b'syntax = "proto3"; package money; message Money { int64 cents = 1; }'}
    )
    new = parse_protobuf(
        definition, {"money.proto": b'syntax = "proto3"; package money; message Money { string cents = 1; }'}
    )
    assert rules(new.problems_reading(old)) == ["price.cents: type_changed"]


def test_reasons_are_bounded(proto) -> None:
    fields = "".join(f"int32 f{number} = {number};" for number in range(1, 1_000))
    old = parse_protobuf(proto(f"message Order {{ {fields} }}"))
    new = parse_protobuf(proto(f"message Order {{ {fields.replace('int32', 'bool')} }}"))
    assert len(new.problems_reading(old)) == 50
    assert len(parse_protobuf(proto("message Order { }")).problems_succeeding(old)) == 50
