"""The table of changes, and how a body becomes a whole .proto text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

HEADER = 'syntax = "proto3"; package shop;\n'


@dataclass(frozen=True)
class Change:
    change: str
    old: str
    new: str
    backward: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    buf: list[str] = field(default_factory=list)
    why: str = ""


def whole(body: str) -> str:
    return body if body.startswith(("syntax", "edition")) else HEADER + body


CHANGES = [
    Change(**entry | {"old": whole(entry["old"]), "new": whole(entry["new"])})
    for entry in yaml.safe_load(Path(__file__).with_name("changes.yaml").read_text())
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "change" in metafunc.fixturenames:
        metafunc.parametrize("change", CHANGES, ids=[one.change.replace(" ", "_") for one in CHANGES])


@pytest.fixture
def changes() -> list[Change]:
    return CHANGES


@pytest.fixture
def proto() -> Callable[[str], bytes]:
    """A body as the bytes of a whole .proto text."""
    return lambda body: whole(body).encode()
