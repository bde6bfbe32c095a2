"""How far the recovery of the journal has come, told where a person or a log collector looks."""

from pathlib import Path

import structlog

log = structlog.get_logger("pydanube.server")

MEBIBYTE = 1 << 20
QUIET_BYTES = 64 * MEBIBYTE
"""A journal smaller than this is read before anybody could read the line."""


class RecoveryProgress:
    """Called with (bytes read, bytes in all); says something at every tenth part."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tenths = 0

    def __call__(self, done: int, total: int) -> None:
        tenths = done * 10 // total if total else 10
        if total < QUIET_BYTES or tenths <= self._tenths:
            return
        self._tenths = tenths
        log.info(
            "recovering journal",
            directory=str(self._directory),
            percent=tenths * 10,
            done_mib=done // MEBIBYTE,
            total_mib=total // MEBIBYTE,
        )
