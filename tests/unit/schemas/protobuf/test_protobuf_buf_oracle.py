"""`buf breaking` judges the same table: the two agree, or the table says why not."""

import json
import subprocess
import sys
from pathlib import Path

CONFIG = '{"version": "v2", "breaking": {"use": ["WIRE_JSON"]}}'
BUF_SECONDS_MAX = 60


def buf_rules(changes, folder: Path) -> dict[str, set[str]]:
    """One run for all: each change is a file of its own in a package of its own."""
    for side in ("old", "new"):
        (folder / side).mkdir()
        (folder / side / "buf.yaml").write_text(CONFIG)
        for number, change in enumerate(changes):
            text = getattr(change, side).replace("shop", f"p{number}").replace("store", f"q{number}")
            (folder / side / f"c{number}.proto").write_text(text)
    run = subprocess.run(
        [Path(sys.executable).with_name("buf"), "breaking", "new", "--against", "old", "--error-format=json"],
        cwd=folder,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=BUF_SECONDS_MAX,
        check=False,
    )
    assert run.returncode in (0, 100), run.stderr
    found: dict[str, set[str]] = {change.change: set() for change in changes}
    for line in run.stdout.splitlines():
        complaint = json.loads(line)
        number = int(Path(complaint["path"]).stem[1:])
        found[changes[number].change].add(complaint["type"])
    return found


def test_buf_names_the_rules_of_the_table(changes, tmp_path: Path) -> None:
    assert buf_rules(changes, tmp_path) == {change.change: set(change.buf) for change in changes}


def test_where_buf_and_we_differ_there_is_a_reason(changes) -> None:
    for change in changes:
        ours = bool(change.backward or change.forward or change.removed)
        assert (ours != bool(change.buf)) == bool(change.why), change.change
