"""`.proto` text to descriptors, or descriptors to checked ones, by protoc in a process of its own.

What it reads is hostile and protoc is C++: it runs with hard limits on memory, processor time, file size and wall
time, without an environment, in an empty folder, and can import nothing but the given references and
Google's well-known types. Whatever happens to it, the broker sees bytes or `Rejected`.
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Final

from pydanube.kernel.errors import Rejected
from pydanube.schemas.limits import check_sizes, refuse
from pydanube.schemas.recently_used import RecentlyUsed

ROOT_FILE: Final = "schema.proto"
"""The name under which protoc sees the text itself."""

WALL_SECONDS_MAX: Final = 10
CPU_SECONDS_MAX: Final = 5
MEMORY_BYTES_MAX: Final = 512 * 1024 * 1024
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024
COMPLAINT_BYTES_MAX: Final = 2_000

CACHED_MAX: Final = 256
CACHED_BYTES_MAX: Final = 16 * 1024 * 1024

_COMPILE: Final = """
sys.path.append(sys.argv[1])
from grpc_tools import _protoc_compiler
sys.exit(_protoc_compiler.run_main([argument.encode() for argument in ["protoc", *sys.argv[2:]]]))
"""


def child_program(*, cpu_seconds: int = CPU_SECONDS_MAX, program: str = _COMPILE) -> str:
    """What the child runs, within its limits.

    It sets them itself, before it reads the text: code between fork and exec is not safe in a process that
    has threads.
    """
    return f"""
import resource, sys
limits = dict(AS={MEMORY_BYTES_MAX}, CPU={cpu_seconds}, FSIZE={OUTPUT_BYTES_MAX}, NOFILE=64, CORE=0)
for name, most in limits.items():
    resource.setrlimit(getattr(resource, "RLIMIT_" + name), (most, most))
{program}"""


_CHILD: Final = child_program()

_REFERENCE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*){0,15}\.proto")
_ROOT_NAME = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_./-]{0,199}")
_NAME_CHARACTERS_MAX = 200
_GIVEN = "given"
# Lines such as "W0000 00:00:1794 11868 parser.cc:659] No syntax specified": notes of the compiler's to itself.
_LOG_LINE = re.compile(r"[IWEF]\d{4} ")
_RESERVED_NAMES = (ROOT_FILE, "google/protobuf/")

_compiled: RecentlyUsed[bytes, bytes] = RecentlyUsed(count_max=CACHED_MAX, weight_max=CACHED_BYTES_MAX)
_compiled_lock = Lock()


def compile_proto(text: bytes, references: Mapping[str, bytes]) -> bytes:
    """A serialized FileDescriptorSet of the text, everything it imports before it. Blocks for about 0.1 s.

    Raises:
        Rejected: protoc refuses the text, or the limits end it; the reason is protoc's own.
    """
    check_sizes(text, references)
    for name in references:
        _check_reference_name(name)
    files = {ROOT_FILE: text, **references}
    return _remembered(files, ["-I.", f"-I{_tools() / '_proto'}", ROOT_FILE])


def check_descriptors(given: bytes, root: str) -> bytes:
    """The same for a FileDescriptorSet somebody sent, whose file `root` is the one meant.

    Descriptors are checked by protoc too: the library in this process trusts them, and dies of some.
    """
    check_sizes(given, {})
    if _ROOT_NAME.fullmatch(root) is None:
        raise refuse(
            f"invalid name {root[:_NAME_CHARACTERS_MAX]!r} of the last file: expected a relative path"
        )
    return _remembered({_GIVEN: given}, [f"--descriptor_set_in={_GIVEN}", root])


def _remembered(files: Mapping[str, bytes], arguments: list[str]) -> bytes:
    digest = sha256(arguments[-1].encode())
    for name in sorted(files):
        digest.update(sha256(name.encode()).digest() + sha256(files[name]).digest())
    key = digest.digest()
    with _compiled_lock:
        known = _compiled.get(key)
    if known is not None:
        return known
    descriptors = _run_protoc(files, arguments)
    with _compiled_lock:
        _compiled.add(key, descriptors, len(descriptors))
    return descriptors


def _tools() -> Path:
    found = find_spec("grpc_tools")
    if found is None or not found.submodule_search_locations:
        raise refuse("this broker cannot compile Protobuf: install the package grpcio-tools beside it")
    return Path(found.submodule_search_locations[0])


def _run_protoc(files: Mapping[str, bytes], arguments: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="danube-protoc-") as scratch:
        sources, results = Path(scratch, "sources"), Path(scratch, "results")
        sources.mkdir()
        results.mkdir()
        for name, content in files.items():
            _write(sources / name, content)
        command = [sys.executable, "-I", "-S", "-c", _CHILD, str(_tools().parent), "--include_imports"]
        command += [f"--descriptor_set_out={results / 'descriptors'}", *arguments]
        with (results / "complaints").open("wb") as complaints:
            try:
                ended = subprocess.run(
                    command,
                    cwd=sources,
                    env={},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    timeout=WALL_SECONDS_MAX,
                    check=False,
                )
            except subprocess.TimeoutExpired as error:
                raise refuse(
                    f"the definition was not compiled within {WALL_SECONDS_MAX} s: make it smaller"
                ) from error
        if ended.returncode != 0:
            raise _refusal(ended.returncode, results / "complaints")
        return (results / "descriptors").read_bytes()


def _check_reference_name(name: str) -> None:
    if (
        len(name) > _NAME_CHARACTERS_MAX
        or _REFERENCE_NAME.fullmatch(name) is None
        or name.startswith(_RESERVED_NAMES)
    ):
        raise refuse(
            f"invalid reference name {name[:_NAME_CHARACTERS_MAX]!r}: expected a relative path such as "
            f"common/money.proto, other than {ROOT_FILE} and google/protobuf/"
        )


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:  # one name is a folder of another
        raise refuse(f"reference {path.name!r} cannot stand beside the others: {error.strerror}") from error


def _refusal(code: int, complaints: Path) -> Rejected:
    with complaints.open("rb") as file:
        said = file.read(COMPLAINT_BYTES_MAX).decode(errors="replace")
    lines = [
        line for line in said.splitlines() if not line.startswith("WARNING: ") and not _LOG_LINE.match(line)
    ]
    # A signal, or Python failing inside the limits, is not protoc's opinion of the text.
    if code < 0 or not lines or lines[0].startswith("Traceback"):
        return refuse(
            f"the definition needs more than {CPU_SECONDS_MAX} s or {MEMORY_BYTES_MAX >> 20} MiB to compile: "
            "make it smaller"
        )
    return refuse(f"the definition does not compile: {'; '.join(lines)}")
