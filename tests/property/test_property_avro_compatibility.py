"""If an Avro schema is called compatible, data of the old schema decodes under the new one; and the published
checker agrees wherever it follows the specification.

Pairs are made by writing a schema at random and changing it in a few places. Data is written and read by a
codec that shares nothing with ours.
"""

import copy
import io
import json
from collections.abc import Iterator
from typing import Any

import avro.compatibility
import avro.io
import avro.schema
import fastavro
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from pydanube.client.schema_codec import codec_of
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.avro_schema import AvroSchema, parse_avro

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
SYMBOLS = ("RED", "GREEN", "BLUE")
FIELD_NAMES = ("a", "b", "c", "d")
DEFAULTS: dict[str, Any] = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 0.25,
    "bytes": "b",
    "string": "s",
}


class Namer:
    """Gives each declared type a name of its own, the same in the same order."""

    def __init__(self) -> None:
        self.count = 0

    def next(self) -> str:
        self.count += 1
        return f"T{self.count}"


@st.composite
def types(draw: st.DrawFn, namer: Namer, depth: int, enclosing: tuple[str, ...] = ()) -> Any:
    kinds = ["primitive"] * 3 + (["array", "map", "union", "record", "enum", "fixed"] if depth else [])
    kind = draw(st.sampled_from(kinds + (["recursion"] if enclosing else [])))
    match kind:
        case "primitive":
            return draw(st.sampled_from(PRIMITIVES))
        case "array":
            return {"type": "array", "items": draw(types(namer, depth - 1))}
        case "map":
            return {"type": "map", "values": draw(types(namer, depth - 1))}
        case "enum":
            symbols = draw(st.lists(st.sampled_from(SYMBOLS), min_size=1, unique=True))
            return {"type": "enum", "name": namer.next(), "symbols": symbols}
        case "fixed":
            return {"type": "fixed", "name": namer.next(), "size": draw(st.integers(1, 3))}
        case "union":
            branches = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
            return [*branches, draw(records(namer, depth - 1))] if draw(st.booleans()) else branches
        case "recursion":
            return ["null", draw(st.sampled_from(enclosing))]
        case _:
            return draw(records(namer, depth - 1, enclosing))


@st.composite
def records(draw: st.DrawFn, namer: Namer, depth: int, enclosing: tuple[str, ...] = ()) -> Any:
    name = namer.next()
    fields = []
    for field in draw(st.lists(st.sampled_from(FIELD_NAMES), min_size=1, max_size=3, unique=True)):
        kind = draw(types(namer, depth, (*enclosing, name)))
        default = {"default": DEFAULTS[kind]} if isinstance(kind, str) and draw(st.booleans()) else {}
        fields.append({"name": field, "type": kind, **default})
    return {"type": "record", "name": name, "fields": fields}


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    return draw(types(Namer(), 3) | records(Namer(), 3))


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every type in a schema, as the container and the key it stands under."""
    if isinstance(node, list):
        for index, branch in enumerate(node):
            yield node, index
            yield from places(branch)
    elif isinstance(node, dict):
        for key in ("items", "values"):
            if key in node:
                yield node, key
                yield from places(node[key])
        for field in node.get("fields", ()):
            yield field, "type"
            yield from places(field["type"])


@st.composite
def changed(draw: st.DrawFn, schema: Any) -> Any:
    box = {"items": copy.deepcopy(schema)}
    for number in range(draw(st.integers(1, 3))):
        owner, key = draw(st.sampled_from(list(places(box))))
        node = owner[key]
        match node:
            case {"type": "record", "fields": fields}:
                change_record(draw, node, fields, number)
            case {"type": "enum", "symbols": symbols}:
                node["symbols"] = draw(st.permutations(SYMBOLS))[: draw(st.integers(1, 3))]
                if draw(st.booleans()):
                    node["default"] = node["symbols"][0]
                del symbols
            case {"type": "fixed"}:
                node["size"] = draw(st.integers(1, 3))
            case list():
                node[:] = draw(st.permutations(node))
                if len(node) > 1 and draw(st.booleans()):
                    node.pop()
            case str() if node in PRIMITIVES:
                owner.pop("default", None) if isinstance(owner, dict) else None
                bare = isinstance(owner, list) or draw(st.booleans())
                other = draw(st.sampled_from(PRIMITIVES))
                owner[key] = other if bare else draw(st.permutations(list({node, other, "null"})))
            case _:
                if not isinstance(owner, list):
                    owner.pop("default", None)
                    owner[key] = ["null", node]
    return box["items"]


def change_record(draw: st.DrawFn, record: Any, fields: list[Any], number: int) -> None:
    match draw(st.integers(0, 4)):
        case 0:
            kind = draw(st.sampled_from(PRIMITIVES))
            default = {"default": DEFAULTS[kind]} if draw(st.booleans()) else {}
            fields.append({"name": f"new{number}", "type": kind, **default})
        case 1 if fields:
            fields.pop()
        case 2 if fields:
            renamed = draw(st.sampled_from(fields))
            if draw(st.booleans()):
                renamed["aliases"] = [renamed["name"]]
            renamed["name"] = f"renamed{number}"
        case 3:
            fields.reverse()
        case _:
            if draw(st.booleans()):
                record["aliases"] = [record["name"]]
            # References to the old name break, which makes such a pair one of the refused.
            record["name"] = record["name"] + "x"


def datum(draw: st.DrawFn, node: Any, named: dict[str, Any], depth: int = 12) -> Any:
    if isinstance(node, list):
        branch = node[0] if depth <= 0 and "null" in node[:1] else draw(st.sampled_from(node))
        value = datum(draw, branch, named, depth - 1)
        label = branch.get("name", branch["type"]) if isinstance(branch, dict) else branch
        return (label, value)
    if isinstance(node, str) and node in named:
        return datum(draw, named[node], named, depth - 1)
    match node if isinstance(node, str) else node["type"]:
        case "null":
            return None
        case "boolean":
            return draw(st.booleans())
        case "int":
            return draw(st.integers(-(2**31), 2**31 - 1))
        case "long":
            return draw(st.integers(-(2**63), 2**63 - 1))
        case "float" | "double":
            return draw(st.sampled_from([0.0, -1.5, 2.0**40]))
        case "bytes":
            return draw(st.sampled_from([b"", b"ascii"]))
        case "string":
            return draw(st.sampled_from(["", "text", "ä" * 70]))
        case "array":
            return [datum(draw, node["items"], named, depth - 1) for _ in range(draw(st.integers(0, 2)))]
        case "map":
            return {
                key: datum(draw, node["values"], named, depth - 1)
                for key in draw(st.sampled_from(["", "k", "kl"]))
            }
        case "enum":
            return draw(st.sampled_from(node["symbols"]))
        case "fixed":
            return b"x" * node["size"]
        case _:
            named[node["name"]] = node
            return {field["name"]: datum(draw, field["type"], named, depth - 1) for field in node["fields"]}


def parsed(schema: Any) -> AvroSchema:
    return parse_avro(json.dumps(schema).encode(), {})


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(copy.deepcopy(schema)), value)
    return out.getvalue()


QUIET = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


@QUIET
@given(st.data())
def test_what_is_called_compatible_decodes_all_old_data(data: st.DataObject) -> None:
    old_schema = data.draw(schemas())
    new_schema = data.draw(changed(old_schema))
    try:
        old, new = parsed(old_schema), parsed(new_schema)
    except Rejected:
        event("refused")
        return
    if new.problems_reading(old):
        event("incompatible")
        return
    event("compatible")
    for _ in range(3):
        payload = written(old_schema, datum(data.draw, old_schema, {}))
        assert old.check_payload(payload) is None
        reader = fastavro.parse_schema(copy.deepcopy(new_schema))
        writer = fastavro.parse_schema(copy.deepcopy(old_schema))
        fastavro.schemaless_reader(io.BytesIO(payload), writer, reader)


@QUIET
@given(st.data())
def test_a_pinned_version_reads_what_the_published_reader_reads(data: st.DataObject) -> None:
    """Also data of schemas that differ by a symbol or a branch, which a datum may do without."""
    old_schema = data.draw(schemas())
    new_schema = data.draw(changed(old_schema))
    if "aliases" in json.dumps(new_schema):  # of which the published reader knows nothing
        return
    try:
        writer = codec_of("avro", json.dumps(old_schema).encode(), 1, 1)
        reader = codec_of("avro", json.dumps(new_schema).encode(), 1, 2)
    except Rejected:
        return
    theirs = avro.io.DatumReader(
        avro.schema.parse(json.dumps(old_schema)), avro.schema.parse(json.dumps(new_schema))
    )
    read = reader.reading(writer)
    for _ in range(3):
        payload = written(old_schema, datum(data.draw, old_schema, {}))
        try:
            value = read(payload)
        except Rejected as error:
            event(f"refused with {error.code.name}")
            if error.code is ErrorCode.PAYLOAD_INVALID:
                with pytest.raises(Exception):  # noqa: B017, PT011 - it has no one error for this
                    theirs.read(avro.io.BinaryDecoder(io.BytesIO(payload)))
            continue
        try:
            expected = theirs.read(avro.io.BinaryDecoder(io.BytesIO(payload)))
        except Exception:  # it takes no union for a type inside an array or map, for one
            event("read by us alone")
            continue
        event("read by both")
        assert same(value, expected), (value, expected)


def same(ours: Any, theirs: Any) -> bool:
    """Whether two readers gave the same.

    Of a union with both bytes and text, one takes the first branch that matches, the other the same one. An integer that is
    read as a floating-point number becomes one with us, as specified; the published reader leaves it as it was.
    """
    match ours, theirs:
        case list(), list():
            return len(ours) == len(theirs) and all(map(same, ours, theirs))
        case dict(), dict():
            return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in ours)
        case str(), bytes():
            return ours.encode() == theirs
        case bytes(), str():
            return ours == theirs.encode()
        case float(), int():
            return ours == float(theirs)
        case _:
            return bool(ours == theirs)


@QUIET
@given(st.data())
def test_the_published_checker_agrees(data: st.DataObject) -> None:
    old_schema = data.draw(schemas())
    new_schema = data.draw(changed(old_schema))
    try:
        old, new = parsed(old_schema), parsed(new_schema)
    except Rejected:
        return
    reader = avro.schema.parse(json.dumps(new_schema))
    writer = avro.schema.parse(json.dumps(old_schema))
    verdict = avro.compatibility.ReaderWriterCompatibilityChecker().get_compatibility(reader, writer)
    theirs = verdict.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    problems = new.problems_reading(old)
    event(f"theirs {theirs}, ours {not problems}")
    assert theirs == (not problems), (problems, verdict.messages)


@QUIET
@given(st.data())
def test_data_cut_anywhere_or_with_bytes_left_over_is_refused(data: st.DataObject) -> None:
    schema = data.draw(records(Namer(), 2))
    payload = written(schema, datum(data.draw, schema, {}))
    ours = parsed(schema)
    assert ours.check_payload(payload) is None
    assert ours.check_payload(payload + b"\x00") is not None
    if payload:
        assert ours.check_payload(payload[: data.draw(st.integers(0, len(payload) - 1))]) is not None
