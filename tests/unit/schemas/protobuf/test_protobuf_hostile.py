"""Definitions written to hurt: protoc is alone with them, bounded, and sees no file but those it was given."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pydanube.kernel.errors import Rejected
from pydanube.schemas import protobuf_compiler
from pydanube.schemas.protobuf_compiler import compile_proto
from pydanube.schemas.protobuf_schema import parse_protobuf


def refusal(definition: bytes, references: dict[str, bytes] | None = None) -> str:
    with pytest.raises(Rejected) as caught:
        parse_protobuf(definition, references or {})
    return caught.value.text


@pytest.mark.parametrize("way", ["{path}", "../../../../../../{path}", "file://{path}"])
def test_no_other_file_can_be_imported(proto, tmp_path: Path, way: str) -> None:
    other = tmp_path / "other.proto"
    other.write_bytes(proto("message Secret {}"))
    text = refusal(proto(f'import "{way.format(path=other)}"; message Order {{ Secret secret = 1; }}'))
    assert "does not compile" in text


def test_the_environment_and_folders_of_the_broker_are_not_told(proto) -> None:
    text = refusal(proto('import "absent.proto"; message Order {}'))
    assert "absent.proto" in text
    assert str(Path(sys.prefix)) not in text
    assert "danube-protoc" not in text


@pytest.mark.parametrize(
    "name",
    [
        "{folder}/x.proto",
        "../x.proto",
        "a/../x.proto",
        "x",
        "",
        "schema.proto",
        "google/protobuf/any.proto",
        "a\0.proto",
    ],
)
def test_references_cannot_be_written_elsewhere(proto, tmp_path: Path, name: str) -> None:
    references = {name.format(folder=tmp_path): proto("message A {}")}
    assert "invalid reference name" in refusal(proto("message Order {}"), references)
    assert list(tmp_path.iterdir()) == []


def test_a_reference_that_is_a_folder_of_another(proto) -> None:
    references = {"a.proto": proto("message A {}"), "a.proto/b.proto": proto("message B {}")}
    assert "beside the others" in refusal(proto("message Order {}"), references)


@pytest.mark.parametrize(
    "definition",
    [
        b'syntax = "proto3"; ' + b"message A {" * 5_000 + b"}" * 5_000,
        b'syntax = "proto3"; message A { ' + b"oneof x { int32 a = 1;" * 5_000,
        b'syntax = "proto3"; ' + b"".join(b"message A%d { int32 a = 1; }" % n for n in range(8_000)),
        b'syntax = "proto3"; message A { '
        + b"".join(b"int32 f%d = %d;" % (n, n) for n in range(1, 11_000))
        + b"}",
        b'syntax = "proto3"; message A {} ' + b"/*" * 200_000,
        b'syntax = "proto3"; message A {} ' + b'"' * 200_000,
        b'syntax = "proto3"; message A {' + b"reserved " + b"5," * 200_000,
        b'syntax = "proto3"; option java_package = ' + b'"a"' * 100_000,
        b'syntax = "proto3"; import "schema.proto"; message A {}',
        b"x" * (1024 * 1024 + 1),
    ],
)
def test_what_is_too_much_is_refused(definition: bytes) -> None:
    assert refusal(definition)


def test_a_compiler_that_does_not_end_is_ended(proto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protobuf_compiler, "WALL_SECONDS_MAX", 0.2)
    monkeypatch.setattr(protobuf_compiler, "_CHILD", "import time; time.sleep(60)")
    assert "not compiled within" in refusal(proto("message Endless {}"))


@pytest.mark.parametrize(
    "crime",
    [
        "x = bytearray(2 << 30)",
        "open('out', 'wb').write(bytes(8 << 20))",
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "while True: pass",
    ],
)
def test_a_compiler_beyond_its_limits_is_ended(proto, monkeypatch: pytest.MonkeyPatch, crime: str) -> None:
    monkeypatch.setattr(
        protobuf_compiler, "_CHILD", protobuf_compiler.child_program(cpu_seconds=1, program=crime)
    )
    assert "needs more than" in refusal(proto(f"message Crime{abs(hash(crime))} {{}}"))


def test_the_child_has_no_environment(proto, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    run = subprocess.run

    def watched(*args, **kwargs):
        seen.append(kwargs["env"])
        return run(*args, **kwargs)

    monkeypatch.setattr(protobuf_compiler.subprocess, "run", watched)
    parse_protobuf(proto("message Watched {}"))
    assert seen == [{}]
    # Known text is not compiled again.
    parse_protobuf(proto("message Watched {}"))
    assert len(seen) == 1


def descriptors(*files: FileDescriptorProto) -> bytes:
    return FileDescriptorSet(file=files).SerializeToString()


def with_message(**fields: object) -> FileDescriptorProto:
    file = FileDescriptorProto(name="a.proto", syntax="proto2")
    file.message_type.add(name="A").field.add(**{"name": "x", "number": 1, "type": 5, "label": 1} | fields)
    return file


@pytest.mark.parametrize(
    "given",
    [
        descriptors(*(FileDescriptorProto(name=a, dependency=[b]) for a, b in (("a", "b"), ("b", "a")))),
        descriptors(*(FileDescriptorProto(name=f"f{n}") for n in range(200))),
        descriptors(with_message(type=11, type_name=".Absent")),
        descriptors(with_message(name="x y")),
        descriptors(with_message(number=0)),
        # The protobuf library of this process dies of this one when it is asked for a copy.
        descriptors(with_message(label=3, type=9, default_value="x")),
        descriptors(FileDescriptorProto(name="--version")),
        descriptors(FileDescriptorProto(name="")),
        descriptors(with_message()).replace(b"a.proto", b"a.pr\xff\xfeo"),
    ],
)
def test_hostile_descriptors_are_refused(given: bytes) -> None:
    assert refusal(given)


def test_descriptors_of_any_kind_do_no_harm() -> None:
    """Damaged descriptors: refused, or as good as any; the library in this process never sees what protoc refuses."""
    original = compile_proto(
        b'syntax = "proto2"; message A { required int32 a = 1 [default = 5]; repeated string b = 2; map<int32, A> m = 3; }',
        {},
    )
    dice = random.Random(7)
    for _ in range(20):
        damaged = bytearray(original)
        for _ in range(dice.randrange(1, 4)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        try:
            schema = parse_protobuf(bytes(damaged))
        except Rejected:
            continue
        assert schema.problems_succeeding(schema) == []
        schema.check_payload(b"\x08\x05")
