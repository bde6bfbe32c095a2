"""Log lines: `key=value` for a person at a terminal, JSON for everything else, secrets for nobody.

Rooms log through `structlog.get_logger("pydanube.<room>")`; libraries that use the standard logging
module come out the same way. The level is `DANUBE_LOG` (debug, info, warning, error; default info).
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TextIO, cast

import msgspec
import structlog
from structlog.typing import EventDict, WrappedLogger

from pydanube.kernel.errors import Rejected
from pydanube.server.redaction import redact, redact_text

LEVEL_VARIABLE: Final = "DANUBE_LOG"
_LEVELS: Final = {name: getattr(logging, name.upper()) for name in ("debug", "info", "warning", "error")}
_COLOURS: Final = {"debug": "2", "info": "32", "warning": "33", "error": "31", "critical": "31;1"}

_encoder = msgspec.json.Encoder(enc_hook=repr)


def configure_logging(
    stream: TextIO | None = None, *, environment: Mapping[str, str] = os.environ, json: bool | None = None
) -> None:
    """Send all logging of this process to the stream (default stderr); JSON unless it is a terminal."""
    target = sys.stderr if stream is None else stream
    level = _level(environment.get(LEVEL_VARIABLE, "info"))
    if json is None:
        json = not target.isatty()
    coloured = target.isatty() and "NO_COLOR" not in environment
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            _name_and_time,
            structlog.processors.ExceptionRenderer(),
            _redact_event,
            _as_json if json else _as_text(coloured=coloured),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *names: _LineWriter(names[0] if names else "pydanube", target),
        # Loggers are made at import, before this call; caching would freeze what they saw first.
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    for handler in root.handlers[:]:
        root.removeHandler(handler)
    root.addHandler(_ToStructlog())
    # Libraries are chatty: their debug and info lines are ours only when asked for.
    root.setLevel(level if level <= logging.DEBUG else max(level, logging.WARNING))
    logging.captureWarnings(True)


class _LineWriter:
    """The end of the chain: one write per line, so lines of two threads do not mix."""

    def __init__(self, name: str, stream: TextIO) -> None:
        self.name = name
        self._stream = stream

    def _write(self, line: str) -> None:
        try:
            self._stream.write(line + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody reads stderr any more; a broker does not stop for that.
            pass

    debug = info = warning = error = critical = log = msg = _write


class _ToStructlog(logging.Handler):
    """Brings records of the standard logging module into the same chain."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:
            text = str(record.msg)  # arguments that do not fit their format: show the format at least
        extra: dict[str, Any] = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger(record.name).log(record.levelno, text, **extra)


def _level(text: str) -> int:
    level = _LEVELS.get(text.strip().lower())
    if level is None:
        raise Rejected(f"{LEVEL_VARIABLE}={text!r} is no log level: expected one of {', '.join(_LEVELS)}")
    return cast(int, level)


def _name_and_time(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    first = {"time": time, "level": event.pop("level"), "logger": logger.name, "event": event.pop("event")}
    return first | dict(event)


def _redact_event(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return {name: redact(name, value) for name, value in event.items()}


def _as_json(logger: WrappedLogger, method: str, event: EventDict) -> str:
    return _encoder.encode(event).decode()


def _as_text(*, coloured: bool) -> Callable[[WrappedLogger, str, EventDict], str]:
    def render(logger: WrappedLogger, method: str, event: EventDict) -> str:
        fields = dict(event)
        level = str(fields.pop("level"))
        shown = f"\x1b[{_COLOURS.get(level, '0')}m{level:<7}\x1b[0m" if coloured else f"{level:<7}"
        exception = fields.pop("exception", None)
        head = f"{fields.pop('time')} {shown} {fields.pop('logger')}: {_one_line(str(fields.pop('event')))}"
        line = " ".join([head, *(f"{name}={_value(value)}" for name, value in fields.items())])
        return line if exception is None else f"{line}\n{redact_text(str(exception))}"

    return render


def _value(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    plain = text.isprintable() and text and not any(mark in text for mark in ' "=')
    return text if plain else _encoder.encode(text).decode()


def _one_line(text: str) -> str:
    return text if text.isprintable() else text.encode("unicode_escape").decode()
