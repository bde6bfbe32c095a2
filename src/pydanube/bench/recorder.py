"""What a stage measured: messages over time and their latency, recorded per group of messages."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from pydanube.kernel.errors import Rejected

try:
    from hdrh.histogram import HdrHistogram
except ImportError as error:
    raise Rejected("`danube bench` needs hdrhistogram: pip install 'pydanube[bench]'") from error

LATENCY_NS_MIN: Final = 1_000
LATENCY_NS_MAX: Final = 3_600_000_000_000
SIGNIFICANT_DIGITS: Final = 3
SLOT_NS: Final = 100_000_000
"""Width of a slot of the timeline."""
ERROR_TEXTS_MAX: Final = 5


def new_histogram() -> HdrHistogram:
    """From a microsecond to an hour, three significant digits."""
    return HdrHistogram(LATENCY_NS_MIN, LATENCY_NS_MAX, SIGNIFICANT_DIGITS)


class Recorder:
    """Fed by the load while it runs. A record costs 2 µs however many messages it stands for."""

    def __init__(self, begin_ns: int) -> None:
        self._latency = new_histogram()
        self._timeline: Counter[int] = Counter()
        self.messages = 0
        self.payload_bytes = 0
        self.first_ns = begin_ns
        self.last_ns = begin_ns
        self.errors = 0
        self.error_texts: list[str] = []

    def record(self, now_ns: int, latency_ns: int, messages: int, size: int) -> None:
        """So many messages, of `size` bytes together, ended now, each with this latency or less."""
        self._latency.record_value(min(max(latency_ns, 0), LATENCY_NS_MAX), messages)
        self._timeline[now_ns // SLOT_NS] += messages
        self.messages += messages
        self.payload_bytes += size
        self.last_ns = now_ns

    def fail(self, text: str, messages: int = 1) -> None:
        self.errors += messages
        if len(self.error_texts) < ERROR_TEXTS_MAX and text not in self.error_texts:
            self.error_texts.append(text)

    def measured(self, *, cpu_seconds: float) -> "Measured":
        return Measured(
            messages=self.messages,
            payload_bytes=self.payload_bytes,
            first_ns=self.first_ns,
            last_ns=self.last_ns,
            timeline=dict(self._timeline),
            histogram=self._latency.encode(),
            cpu_seconds=cpu_seconds,
            errors=self.errors,
            error_texts=self.error_texts,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A recorder's content in a form that travels between processes and adds up."""

    messages: int = 0
    payload_bytes: int = 0
    first_ns: int = 0
    last_ns: int = 0
    timeline: dict[int, int] = field(default_factory=dict)
    histogram: bytes = b""
    cpu_seconds: float = 0.0
    """Of the load's own process."""
    errors: int = 0
    error_texts: list[str] = field(default_factory=list)

    def __add__(self, other: "Measured") -> "Measured":
        timeline = Counter(self.timeline)
        timeline.update(other.timeline)
        texts = [*self.error_texts, *(text for text in other.error_texts if text not in self.error_texts)]
        started = [part.first_ns for part in (self, other) if part.first_ns]
        return Measured(
            messages=self.messages + other.messages,
            payload_bytes=self.payload_bytes + other.payload_bytes,
            first_ns=min(started, default=0),
            last_ns=max(self.last_ns, other.last_ns),
            timeline=dict(timeline),
            histogram=_added(self.histogram, other.histogram),
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            errors=self.errors + other.errors,
            error_texts=texts[:ERROR_TEXTS_MAX],
        )

    @property
    def seconds(self) -> float:
        return (self.last_ns - self.first_ns) / 1e9

    def latency(self) -> HdrHistogram:
        return HdrHistogram.decode(self.histogram) if self.histogram else new_histogram()

    def percentiles_ns(self, shares: Sequence[float]) -> list[float]:
        """The latency that so many per cent of the messages kept; zero if there were none."""
        found = self.latency().get_percentile_to_value_dict(list(shares))
        return [found.get(share, 0) for share in shares]

    def messages_per_second(self) -> list[tuple[float, float]]:
        """The timeline: seconds since the beginning, and the rate in the slot that begins there."""
        if not self.timeline:
            return []
        first, last = min(self.timeline), max(self.timeline)
        per_second = 1_000_000_000 / SLOT_NS
        return [
            ((slot - first) / per_second, self.timeline.get(slot, 0) * per_second)
            for slot in range(first, last + 1)
        ]


def _added(one: bytes, other: bytes) -> bytes:
    if not one or not other:
        return one or other
    histogram = HdrHistogram.decode(one)
    histogram.add(HdrHistogram.decode(other))
    encoded: bytes = histogram.encode()
    return encoded
