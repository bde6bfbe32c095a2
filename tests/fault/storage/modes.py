"""The three storage modes, each with a look into its store from outside."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pydanube.history.sweep import SWEPT_PATH
from pydanube.stores.settings import DurableSettings, open_store
from tests.contract.stores.conftest import s3_settings

SMALL_FILES = {"rotation": {"max_bytes": 1 << 20}, "cache_bytes_max": 0}
"""Journal files are written in full when they are made, and what is staged is read from where it lies."""


@dataclass(frozen=True)
class Mode:
    settings: dict[str, Any]
    """Of the broker's file."""
    stored: Callable[[], Awaitable[set[str]]]
    """Names of all objects that are, or look like, segments."""


def local(folder: Path) -> Mode:
    root = folder / "data" / "wal"
    return Mode({"storage": {"mode": "local", "wal": SMALL_FILES}}, _files_below(root))


def shared_fs(folder: Path) -> Mode:
    root = folder / "shared"
    return durable("shared_fs", {"backend": "fs", "root": str(root)}, _files_below(root))


def object_store(endpoint: str) -> Mode:
    settings = s3_settings(endpoint)

    async def stored() -> set[str]:
        store = open_store(settings)
        try:
            return {found.key.rpartition("/")[2] async for found in store.list(SWEPT_PATH)}
        finally:
            await store.close()

    return durable("object_store", as_file(settings), stored)


def durable(mode: str, place: dict[str, Any], stored: Callable[[], Awaitable[set[str]]]) -> Mode:
    return Mode({"storage": {"mode": mode, "durable": place, "wal": SMALL_FILES}}, stored)


def as_file(settings: DurableSettings) -> dict[str, Any]:
    """What an operator writes for these settings, secrets included."""
    defaults = DurableSettings()
    return {
        name: value
        for name, value in msgspec.to_builtins(settings).items()
        if value != msgspec.to_builtins(getattr(defaults, name))
    }


def _files_below(root: Path) -> Callable[[], Awaitable[set[str]]]:
    async def stored() -> set[str]:
        return {path.name for path in (root / SWEPT_PATH).rglob("*") if path.is_file()}

    return stored
