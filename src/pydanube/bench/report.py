"""What is told of a run: one object, the same for people and programs."""

from dataclasses import dataclass, replace
from typing import Final

from pydanube.bench.crew import Ending
from pydanube.bench.plan import Plan
from pydanube.bench.recorder import Measured
from pydanube.bench.run import Result
from pydanube.bench.sequences import Verdict

PERCENTILES: Final = {"p50_us": 50.0, "p90_us": 90.0, "p99_us": 99.0, "p999_us": 99.9, "p9999_us": 99.99}
_WRITTEN: Final = {"p999_us": "p99.9", "p9999_us": "p99.99"}
LATENCY_OF: Final = {
    "publish": "from handing a message to the client until the broker's receipt",
    "consume": "from asking the client for messages until it had some",
    "latency": "from the moment a message was due until the consumer had it",
}


@dataclass(frozen=True, slots=True)
class Report:
    """A run that came to an end, its own or the user's."""

    command: str
    plan: Plan
    result: Result

    @property
    def latency_of(self) -> str:
        """What the percentiles mean."""
        return LATENCY_OF[self.command]

    @property
    def measured(self) -> Measured:
        return self.result.outcome.measured

    @property
    def verdict(self) -> Verdict:
        verdict = self.result.outcome.verdict
        # What was not waited for is not lost.
        return replace(verdict, lost=0) if self.is_interrupted else verdict

    @property
    def is_interrupted(self) -> bool:
        return self.result.ending is Ending.INTERRUPTED

    @property
    def unanswered(self) -> int:
        """Messages sent whose receipt never came."""
        if self.command != "publish" or self.is_interrupted:
            return 0
        # A run that breaks off is an error too, and none of the messages.
        return max(self.plan.count - self.measured.messages - self.measured.errors, 0)

    @property
    def failed(self) -> int:
        published = self.result.outcome.published
        return self.measured.errors + (published.errors if published else 0)

    @property
    def errors(self) -> int:
        return self.failed + self.unanswered + self.verdict.total

    def error_texts(self) -> list[str]:
        published = self.result.outcome.published
        texts = [*self.measured.error_texts, *(published.error_texts if published else ())]
        if self.unanswered:
            texts.append(f"{self.unanswered:,} messages were not answered")
        if self.verdict.total:
            texts.append(self.verdict.text)
        if self.result.ending is Ending.STALLED:
            texts.append("nothing happened any more: look into the broker's log, or wait longer by --timeout")
        return texts

    def fields(self) -> dict[str, object]:
        """Everything, for programs."""
        measured, verdict = self.measured, self.verdict
        fields: dict[str, object] = {
            "command": self.command,
            "messages_per_second": _per(measured.messages, measured.seconds),
            "bytes_per_second": _per(measured.payload_bytes, measured.seconds),
            "messages": measured.messages,
            "bytes": measured.payload_bytes,
            "seconds": round(measured.seconds, 6),
            "latency_of": self.latency_of,
            **latency_us(measured),
            "client_cpu_us_per_message": _per(measured.cpu_seconds * 1e6, measured.messages),
        }
        if self.result.broker_cpu_seconds is not None:
            fields["broker_cpu_us_per_message"] = _per(
                self.result.broker_cpu_seconds * 1e6, measured.messages
            )
        if self.result.outcome.published is not None:
            published = latency_us(self.result.outcome.published)
            fields |= {f"publish_{name}": value for name, value in published.items()}
        return fields | {
            "errors": self.errors,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "lost": verdict.lost,
            "duplicated": verdict.duplicated,
            "out_of_order": verdict.out_of_order,
            "error_texts": self.error_texts(),
            "ending": self.result.ending.value,
            "settings": self.plan.settings(),
        }

    def lines(self) -> list[tuple[str, str]]:
        """The same in a few lines, for people."""
        measured = self.measured
        told = [
            ("messages", f"{measured.messages:,} of {self.plan.size:,} B in {measured.seconds:.2f} s"),
            ("throughput", _throughput(measured)),
            *_latency_lines("latency", measured),
        ]
        if self.result.outcome.published is not None:
            told += _latency_lines("publishing", self.result.outcome.published)
        if self.result.broker_cpu_seconds is not None:
            told.append(("broker CPU", _cpu(self.result.broker_cpu_seconds, measured)))
        told.append(("client CPU", _cpu(measured.cpu_seconds, measured)))
        told.append(("errors", f"{self.errors:,}" if self.errors else "none"))
        return told


def latency_us(measured: Measured) -> dict[str, float]:
    latency = measured.latency()
    values = measured.percentiles_ns(list(PERCENTILES.values()))
    return {
        **{name: _us(value) for name, value in zip(PERCENTILES, values, strict=True)},
        "max_us": _us(latency.get_max_value()),
        "mean_us": _us(latency.get_mean_value()),
    }


def _latency_lines(title: str, measured: Measured) -> list[tuple[str, str]]:
    values = latency_us(measured)
    names = [_WRITTEN.get(name, name.removesuffix("_us")) for name in values]
    names[0] = f"{title} {names[0]}"
    return [(name, f"{value:,.0f} µs") for name, value in zip(names, values.values(), strict=True)]


def _cpu(seconds: float, measured: Measured) -> str:
    return f"{_per(seconds * 1e6, measured.messages):,.3f} µs a message"


def _throughput(measured: Measured) -> str:
    messages, size = _per(measured.messages, measured.seconds), _per(measured.payload_bytes, measured.seconds)
    return f"{messages:,.0f} messages/s, {size / 1e6:,.1f} MB/s"


def _us(nanoseconds: float) -> float:
    return round(nanoseconds / 1000, 1)


def _per(amount: float, unit: float) -> float:
    return round(amount / unit, 3) if unit else 0.0
