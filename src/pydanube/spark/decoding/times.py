"""Dates and times as the counts Arrow and Spark keep, within the years both can show."""

from datetime import UTC, date, datetime, timedelta
from typing import Final

from pydanube.spark.decoding.payloads import BadPayload

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)

MICROS_MIN: Final = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
MICROS_MAX: Final = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
DAYS_MIN: Final = date.min.toordinal() - _EPOCH_ORDINAL
DAYS_MAX: Final = date.max.toordinal() - _EPOCH_ORDINAL


def micros(count: int) -> int:
    """A count of microseconds since 1970, if its year is one of 1 to 9999."""
    if MICROS_MIN <= count <= MICROS_MAX:
        return count
    raise BadPayload("the time is not within the years 1 to 9999")


def days(count: int) -> int:
    """A count of days since 1970, if its year is one of 1 to 9999."""
    if DAYS_MIN <= count <= DAYS_MAX:
        return count
    raise BadPayload("the date is not within the years 1 to 9999")


def micros_of_text(text: str) -> int:
    """A date-time of RFC 3339; one without an offset is taken as UTC."""
    try:
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return micros((time - _EPOCH) // _MICROSECOND)
    except (ValueError, OverflowError):
        raise BadPayload("the text is no date-time as in 2026-01-31T12:00:00Z") from None


def days_of_text(text: str) -> int:
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        raise BadPayload("the text is no date as in 2026-01-31") from None
