"""Compile the hot cores with mypyc, in place, when they are older than their sources.

The same sources run uncompiled: without a C compiler this says so and everything works, only slower.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
STAMP = ROOT / ".venv" / ".compiled"


def clean() -> None:
    for path in SOURCE.rglob("*.so"):
        path.unlink()
    STAMP.unlink(missing_ok=True)


def is_current() -> bool:
    if not STAMP.exists() or not any(SOURCE.rglob("*.so")):
        return False
    built = STAMP.stat().st_mtime
    # Any source counts, not only the compiled ones: their types reach into the compiled code.
    sources = [ROOT / "setup.py", *SOURCE.rglob("*.py")]
    return all(path.stat().st_mtime <= built for path in sources)


def main() -> None:
    if "--clean" in sys.argv[1:] or os.environ.get("PYDANUBE_PURE"):
        clean()
        return
    if is_current():
        return
    clean()
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        print("no C compiler found: the hot cores run from their Python source (slower, same behaviour)")
        return
    print("compiling the hot cores with mypyc ...", flush=True)
    build = subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace", "--build-temp", "build/temp"],
        cwd=ROOT,
        env={**os.environ, "PYDANUBE_COMPILE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if build.returncode != 0:
        clean()
        print(build.stdout[-4000:], build.stderr[-4000:], sep="\n", file=sys.stderr)
        sys.exit(
            "compiling the hot cores failed (see above); `PYDANUBE_PURE=1 make ...` runs them from source"
        )
    STAMP.touch()


if __name__ == "__main__":
    main()
