"""Where a read begins and ends, as users say it, and the offsets that means.

A position names the next offset to read of each part; a range goes up to, and does not include, its end.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from pydanube.kernel.errors import Rejected
from pydanube.spark.topics import TopicPart

Word = Literal["earliest", "latest"]
Place = Word | int
"""In one part."""
OffsetAt = Callable[[int], int]
"""The first offset that was appended at or after some Unix milliseconds."""

WORDS: Final = ("earliest", "latest")
EXAMPLE: Final = '{"/default/orders": {"0": 12, "1": "earliest"}}'


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where to begin or to end."""

    otherwise: Word
    """In parts not named."""
    places: Mapping[str, Mapping[int, Place]] = field(default_factory=dict)
    """By topic, or part, and number of the partition."""
    whole: Mapping[str, Place] = field(default_factory=dict)
    """By the name of a topic without partitions, or of a part."""
    append_ms: int | None = None
    """A moment, in all parts."""

    @classmethod
    def at(cls, moment: datetime | int) -> "Wanted":
        """The first message appended at or after a moment: a datetime with a time zone, or Unix milliseconds."""
        if isinstance(moment, datetime):
            if moment.tzinfo is None:
                raise Rejected(f"invalid time {moment}: give it a time zone, e.g. datetime.now(UTC)")
            moment = round(moment.timestamp() * 1000)
        return cls("earliest", append_ms=moment)

    @classmethod
    def of(cls, given: object, *, otherwise: Word, what: str) -> "Wanted":
        """From `earliest`, `latest`, a mapping as in the JSON of options, or a datetime."""
        match given:
            case None:
                return cls(otherwise)
            case "earliest" | "latest":
                return cls(given)
            case datetime():
                return cls.at(given)
            case Mapping():
                return cls._of_mapping(given, otherwise=otherwise, what=what)
            case _:
                raise _invalid(what, given)

    @classmethod
    def _of_mapping(cls, given: Mapping[object, object], *, otherwise: Word, what: str) -> "Wanted":
        whole: dict[str, Place] = {}
        places: dict[str, dict[int, Place]] = {}
        for topic, value in given.items():
            if not isinstance(topic, str):
                raise _invalid(what, given)
            if isinstance(value, Mapping):
                places[topic] = {
                    _partition(number, what): _place(place, topic, what) for number, place in value.items()
                }
            else:
                whole[topic] = _place(value, topic, what)
        return cls(otherwise, places, whole)

    def check(self, parts: Sequence[TopicPart], *, what: str) -> None:
        """Refuse what names none of these parts, or several with one number."""
        for topic in self.whole:
            found = [part for part in parts if topic in (part.topic, part.name)]
            if len(found) > 1:
                raise Rejected(
                    f"{what}: {topic} has {len(found)} partitions: give the offset of each, such as {EXAMPLE}"
                )
            if not found:
                raise Rejected(f"{what} names {topic}, which is not read: name it in topic or topics too")
        for topic, places in self.places.items():
            known = {part.partition for part in parts if topic == part.topic}
            unknown = sorted(places.keys() - known)
            if unknown:
                raise Rejected(
                    f"{what} names partition {unknown[0]} of {topic}, which is not read: there are {sorted(known)}"
                )

    def offset(self, part: TopicPart, available: range, offset_at: OffsetAt) -> int:
        """The offset this means in a part; one that was said outright may not be available."""
        if self.append_ms is not None:
            return offset_at(self.append_ms)
        place = self.whole.get(part.name, self.whole.get(part.topic))
        if place is None:
            place = self.places.get(part.topic, {}).get(part.partition, self.otherwise)
        if place == "earliest":
            return available.start
        if place == "latest":
            return available.stop
        return place


EARLIEST: Final = Wanted("earliest")
LATEST: Final = Wanted("latest")


def parse_offsets(text: str | None, *, otherwise: Word, what: str) -> Wanted:
    """An option: a word, or JSON."""
    if text is None or text in WORDS:
        return Wanted.of(text, otherwise=otherwise, what=what)
    try:
        given = json.loads(text)
    except ValueError:
        raise _invalid(what, text) from None
    if not isinstance(given, dict):
        raise _invalid(what, text)
    return Wanted.of(given, otherwise=otherwise, what=what)


def parse_moment(text: str, *, what: str) -> Wanted:
    """An option: ISO 8601, in UTC if it says no zone, or Unix milliseconds."""
    if text.isdecimal():
        return Wanted.at(int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Rejected(
            f"invalid {what} {text!r}: expected ISO 8601 such as 2026-01-31T12:00:00Z, or Unix milliseconds"
        ) from None
    return Wanted.at(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _partition(number: object, what: str) -> int:
    if isinstance(number, (str, int)) and str(number).isdecimal():
        return int(number)
    raise Rejected(f"invalid partition {number!r} in {what}: expected a number, such as in {EXAMPLE}")


def _place(value: object, topic: str, what: str) -> Place:
    if value == "earliest" or value == "latest":  # noqa: PLR1714 - mypy understands this form only
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise Rejected(
        f"invalid offset {value!r} of {topic} in {what}: expected 0 or more, 'earliest' or 'latest'"
    )


def _invalid(what: str, given: object) -> Rejected:
    return Rejected(f"invalid {what} {given!r}: expected earliest, latest or offsets such as {EXAMPLE}")
