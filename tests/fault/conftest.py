"""The harness is the package `tests.fault`, as `python -m tests.fault` sees it: make it importable here too."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.fault.small_disk import LimitedFiles, NoMountError, SmallDisk, SmallFileSystem  # noqa: E402


@pytest.fixture(params=["file system", "file size"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[SmallDisk]:
    small: SmallDisk
    if request.param == "file size":
        small = LimitedFiles(tmp_path)
    else:
        try:
            small = SmallFileSystem(tmp_path / "small", size_mib=48)
        except NoMountError as error:
            with capsys.disabled():
                print(
                    f"\nNO FULL DISK ON THIS MACHINE: mounting failed ({error}); file sizes are limited instead"
                )
            small = LimitedFiles(tmp_path)
    yield small
    small.close()
