"""Who did what to what, and who was refused: one JSON object a line.

Through the logger `pydanube.audit`, or into a file of its own. A record has no room for a payload, token or secret.
"""

import logging
import os
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Rejected
from pydanube.security.quotas import TokenBucket
from pydanube.security.settings import AuditSettings

LOGGER: Final = "pydanube.audit"
TEXT_MAX: Final = 1024
REFUSALS_PER_SECOND_MAX: Final = 50
"""Callers who cannot say who they are cost nothing to send: beyond this they are only counted."""
MEBIBYTE: Final = 1 << 20

_encoder = msgspec.json.Encoder()


class Outcome(StrEnum):
    ALLOWED = "allowed"
    DENIED = "denied"
    """The caller is known, and may not."""
    REFUSED = "refused"
    """Who is calling could not be established."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    time: str
    principal: str
    action: str
    resource: str
    outcome: Outcome
    reason: str
    peer: str
    left_out: int = 0
    """Refusals before this one that were not written down."""


class AuditLog:
    """Writes records as they come: a line costs some microseconds, and is out before the call goes on."""

    def __init__(self, settings: AuditSettings, clock: Clock) -> None:
        self.reads = settings.reads
        self.refusals_dropped_total = 0
        self.failures_total = 0
        """Records that could not be written to the file, and went to the broker's log instead."""
        self._clock = clock
        self._refusals = TokenBucket(REFUSALS_PER_SECOND_MAX, clock.monotonic_ms())
        self._dropped = 0
        self._logger = logging.getLogger(LOGGER)
        self._logger.setLevel(logging.INFO)
        self._file = None if settings.file is None else _opened(settings.file, settings)

    def record(
        self, outcome: Outcome, *, principal: str, action: str, resource: str, reason: str, peer: str
    ) -> None:
        dropped = 0
        if outcome is Outcome.REFUSED:
            if self._refusals.take(1, self._clock.monotonic_ms()):
                self._dropped += 1
                self.refusals_dropped_total += 1
                return
            dropped, self._dropped = self._dropped, 0
        line = _encoder.encode(
            AuditRecord(
                time=_rfc3339(self._clock.now_ms()),
                principal=_shown(principal),
                action=_shown(action),
                resource=_shown(resource),
                outcome=outcome,
                reason=_shown(reason),
                peer=_shown(peer),
                left_out=dropped,
            )
        )
        if self._file is None:
            self._logger.log(
                logging.INFO if outcome is Outcome.ALLOWED else logging.WARNING, "%s", line.decode()
            )
            return
        try:
            self._file.write(line + b"\n")
        except OSError as error:
            # A full disk must not stop the broker, and must not pass in silence.
            self.failures_total += 1
            self._logger.error("the audit log cannot be written (%s): %s", error.strerror, line.decode())

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _RotatedFile:
    """A file that only its owner may read, and older ones beside it: `name.1` is the youngest of them."""

    def __init__(self, path: Path, *, bytes_max: int, files_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._open()

    def write(self, line: bytes) -> None:
        if self._size + len(line) > self._bytes_max and self._size:
            self._rotate()
        # One write a line: lines stay whole, whoever else writes or reads.
        self._size += os.write(self._descriptor, line)

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> None:
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def _rotate(self) -> None:
        for number in range(self._files_max - 1, 0, -1):
            with suppress(FileNotFoundError):
                os.replace(self._older(number - 1), self._older(number))
        full = self._descriptor
        self._open()
        os.close(full)

    def _older(self, number: int) -> Path:
        return self._path if number == 0 else self._path.with_name(f"{self._path.name}.{number}")


def _opened(file: str, settings: AuditSettings) -> _RotatedFile:
    path = Path(file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _RotatedFile(path, bytes_max=settings.file_mb_max * MEBIBYTE, files_max=settings.files_max)
    except OSError as error:
        raise Rejected(f"auth.audit.file: {path} cannot be written: {error.strerror}") from error


def _shown(text: str) -> str:
    """Names come from callers: what is not printable could pass for another line, here or on a terminal."""
    text = text[:TEXT_MAX]
    return text if text.isprintable() else text.encode("unicode_escape").decode()


def _rfc3339(now_ms: int) -> str:
    return (
        datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
