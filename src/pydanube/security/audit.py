"""Who did what to what, and who was refused: one JSON object a line.

Through the logger `pydanube.audit`, or into a file of its own. A record has no room for a payload, token or secret.
"""

import logging
import os
from datetime import UTC, datetime
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import IO, Final

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
    uncounted: int = 0
    """Refusals before this one that were not written down."""


class AuditLog:
    """Writes records as they come: a line costs some microseconds, and is out before the call goes on."""

    def __init__(self, settings: AuditSettings, clock: Clock) -> None:
        self.reads = settings.reads
        self.refusals_dropped_total = 0
        self._clock = clock
        self._refusals = TokenBucket(REFUSALS_PER_SECOND_MAX, clock.monotonic_ms())
        self._dropped = 0
        self._logger = logging.getLogger(LOGGER)
        self._logger.setLevel(logging.INFO)
        self._file: _PrivateFile | None = None
        if settings.file is not None:
            self._file = _opened(settings)

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
                principal=principal[:TEXT_MAX],
                action=action[:TEXT_MAX],
                resource=resource[:TEXT_MAX],
                outcome=outcome,
                reason=reason[:TEXT_MAX],
                peer=peer[:TEXT_MAX],
                uncounted=dropped,
            )
        ).decode()
        level = logging.INFO if outcome is Outcome.ALLOWED else logging.WARNING
        if self._file is None:
            self._logger.log(level, "%s", line)
        else:
            self._file.handle(logging.LogRecord(LOGGER, level, "", 0, line, None, None))

    @property
    def failures_total(self) -> int:
        """Records that could not be written."""
        return 0 if self._file is None else self._file.failures_total

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class _PrivateFile(RotatingFileHandler):
    """A file only its owner may read, and older ones beside it."""

    failures_total = 0

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the name logging calls
        """A full disk must not stop the broker, and must not pass in silence."""
        self.failures_total += 1
        if self.failures_total == 1:
            logging.getLogger("pydanube.security").exception(
                "the audit log cannot be written, records are lost"
            )

    def _open(self) -> IO[str]:  # type: ignore[override]
        def private(path: str, flags: int) -> int:
            return os.open(path, flags, 0o600)

        return open(self.baseFilename, self.mode, encoding="utf-8", opener=private)


def _opened(settings: AuditSettings) -> _PrivateFile:
    assert settings.file is not None
    path = Path(settings.file)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return _PrivateFile(
            path, maxBytes=settings.file_mb_max * MEBIBYTE, backupCount=settings.files_max - 1
        )
    except OSError as error:
        raise Rejected(f"auth.audit.file: {path} cannot be written: {error.strerror}") from error


def _rfc3339(now_ms: int) -> str:
    return (
        datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
