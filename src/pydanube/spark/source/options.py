"""The options of reading, as users write them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Final, Literal, cast

from pydanube.kernel.errors import Rejected
from pydanube.spark.columns import MESSAGE_SCHEMA
from pydanube.spark.connection import Connection
from pydanube.spark.source.offsets import EARLIEST, LATEST, Wanted, parse_moment, parse_offsets
from pydanube.spark.source.slices import DEFAULT_BOUNDS, SliceBounds

Ranges = Mapping[str, Sequence[range]]
"""Offsets to read, by the names of parts."""
ReadFrom = Literal["auto", "store", "broker"]

STORE_PREFIX: Final = "store."
"""Options of the object store that history lies in: the keys of `storage.durable` in a broker's settings."""
COUNT_MAX: Final = (1 << 63) - 1
ALL_COLUMNS: Final = tuple(MESSAGE_SCHEMA.names)

READ_OPTIONS: Final = (
    "topic", "topics", "topicPattern", "path", "ranges",
    "startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp",
    "columns", "failOnDataLoss", "readFrom", "maxSliceMessages", "maxSliceBytes",
    "maxMessagesPerTrigger", "maxBytesPerTrigger", "availableNow",
    "url", "token", "caFile", "certFile", "keyFile",
)  # fmt: skip
"""All that reading understands, beside those of the store."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What to read, from where, and how much at once."""

    connection: Connection
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start: Wanted = EARLIEST
    end: Wanted = LATEST
    is_bounded: bool = False
    """Whether `end` was said, so that a stream has one too."""
    ranges: Ranges | None = None
    """By the names of parts; instead of topics, start and end."""
    columns: tuple[str, ...] = ALL_COLUMNS
    fail_on_data_loss: bool = True
    read_from: ReadFrom = "auto"
    slice_bounds: SliceBounds = DEFAULT_BOUNDS
    messages_per_trigger: int | None = None
    bytes_per_trigger: int | None = None
    available_now: bool = False
    store: Mapping[str, str] = field(default_factory=dict, repr=False)


def parse_options(options: Mapping[str, str]) -> ReadOptions:
    """Read and check all options, whose names may come in any case.

    Raises:
        Rejected: an option is unknown or has a value it cannot have; the text says which ones it can.
    """
    given = _Given(options)
    ranges = given.get("ranges")
    topics, pattern = ((), None) if ranges is not None else _topics(given)
    return ReadOptions(
        connection=Connection.of_options(options),
        topics=topics,
        pattern=pattern,
        start=_wanted(given, "starting"),
        end=_wanted(given, "ending"),
        is_bounded=bool(given.get("endingOffsets") or given.get("endingTimestamp")),
        ranges=None if ranges is None else _ranges(ranges),
        columns=_columns(given.get("columns")),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        read_from=given.choice("readFrom", "auto", "store", "broker"),
        slice_bounds=SliceBounds(
            given.count("maxSliceMessages") or DEFAULT_BOUNDS.messages,
            given.count("maxSliceBytes") or DEFAULT_BOUNDS.stored_bytes,
        ),
        messages_per_trigger=given.count("maxMessagesPerTrigger"),
        bytes_per_trigger=given.count("maxBytesPerTrigger"),
        available_now=given.flag("availableNow", default=False),
        store=given.store,
    )


def ranges_to_json(ranges: Ranges) -> str:
    """The option `ranges`."""
    return json.dumps({name: [[one.start, one.stop] for one in several] for name, several in ranges.items()})


def nearest(name: str, known: Sequence[str]) -> str:
    """What to use instead of an unknown name."""
    by_lower = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_lower, n=1)
    return f"did you mean {by_lower[close[0]]}?" if close else f"there are {', '.join(known)}"


class _Given:
    """Options by their names, each known."""

    def __init__(self, options: Mapping[str, str]) -> None:
        known = {name.lower(): name for name in READ_OPTIONS}
        self._values: dict[str, str] = {}
        self.store: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower.startswith(STORE_PREFIX):
                self.store[lower.removeprefix(STORE_PREFIX)] = value
            elif lower in known:
                self._values[known[lower]] = value
            else:
                raise Rejected(f"unknown option {name!r}: {nearest(name, (*READ_OPTIONS, 'store.*'))}")

    def get(self, name: str) -> str | None:
        return self._values.get(name)

    def count(self, name: str) -> int | None:
        value = self._values.get(name)
        if value is None:
            return None
        if not value.isdecimal() or not 0 < int(value) <= COUNT_MAX:
            raise Rejected(f"invalid {name} {value!r}: expected a number from 1 to {COUNT_MAX}")
        return int(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = self._values.get(name, str(default)).lower()
        if value not in ("true", "false"):
            raise Rejected(f"invalid {name} {value!r}: expected true or false")
        return value == "true"

    def choice(self, name: str, *allowed: str) -> ReadFrom:
        value = self._values.get(name, allowed[0]).lower()
        if value not in allowed:
            raise Rejected(f"invalid {name} {value!r}: expected one of {', '.join(allowed)}")
        return cast(ReadFrom, value)


def _topics(given: _Given) -> tuple[tuple[str, ...], str | None]:
    said = {name: value for name in ("topic", "topics", "topicPattern", "path") if (value := given.get(name))}
    if len(said) != 1:
        names = f"{' and '.join(said)} are" if said else "none is"
        raise Rejected(f"{names} set: set exactly one of topic, topics (joined by commas) and topicPattern")
    [(name, value)] = said.items()
    if name == "topicPattern":
        return (), value
    return tuple(topic.strip() for topic in value.split(",") if topic.strip()), None


def _wanted(given: _Given, which: Literal["starting", "ending"]) -> Wanted:
    offsets, moment = (given.get(f"{which}{kind}") for kind in ("Offsets", "Timestamp"))
    if offsets is not None and moment is not None:
        raise Rejected(f"{which}Offsets and {which}Timestamp are both set: keep one")
    if moment is not None:
        return parse_moment(moment, what=f"{which}Timestamp")
    otherwise: Literal["earliest", "latest"] = "earliest" if which == "starting" else "latest"
    return parse_offsets(offsets, otherwise=otherwise, what=f"{which}Offsets")


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ALL_COLUMNS
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in ALL_COLUMNS:
            raise Rejected(f"unknown column {name!r} in columns: {nearest(name, ALL_COLUMNS)}")
    if len(set(names)) != len(names):
        raise Rejected(f"invalid columns {text!r}: a column is named twice")
    return names


def _ranges(text: str) -> dict[str, tuple[range, ...]]:
    try:
        return {
            str(name): tuple(range(int(start), int(stop)) for start, stop in several)
            for name, several in json.loads(text).items()
        }
    except (ValueError, TypeError, AttributeError):
        example = '{"/default/orders": [[0, 12]]}'
        raise Rejected(f"invalid ranges {text!r}: expected offsets by part, such as {example}") from None
