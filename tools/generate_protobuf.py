"""Write `src/pydanube/protocol/*_pb2.py` from `proto/`, or with --check say whether they are current.

The messages are put into a descriptor pool of their own: the public Python client registers the same
names in protobuf's default pool, and both must be importable in one process.
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "proto"
TARGET = ROOT / "src" / "pydanube" / "protocol"


def generate(folder: Path) -> None:
    protos = [path.name for path in sorted(SOURCES.glob("*.proto"))]
    arguments = ["protoc", f"-I{SOURCES}", f"-I{files('grpc_tools') / '_proto'}"]
    if protoc.main([*arguments, f"--python_out={folder}", f"--pyi_out={folder}", *protos]) != 0:
        sys.exit("protoc failed")
    for path in folder.glob("*_pb2.py"):
        text = path.read_text()
        private = text.replace("_descriptor_pool.Default()", "_descriptor_pool.DescriptorPool()")
        assert private != text, f"{path.name}: protoc's output has changed, adapt this script"
        path.write_text(private)


def main() -> None:
    if "--check" not in sys.argv[1:]:
        generate(TARGET)
        return
    with tempfile.TemporaryDirectory() as scratch:
        generate(Path(scratch))
        for fresh in sorted(Path(scratch).iterdir()):
            current = TARGET / fresh.name
            if not current.exists() or current.read_text() != fresh.read_text():
                sys.exit(f"{current.relative_to(ROOT)} is out of date: run `make protobuf`")


if __name__ == "__main__":
    main()
