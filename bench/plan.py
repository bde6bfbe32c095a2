"""What every scenario is given: how much to run, with which tools, and where results go."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.danube_api import MetricMissingError
from bench.load import LoadError, Tally
from bench.results import Results, Sample
from bench.servers import Server, ServerError
from bench.toolchain import Tools


@dataclass(frozen=True, slots=True)
class Measurement:
    """One contestant in one case; `take` puts one slice of load on it."""

    case: str
    contestant: str
    take: Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Plan:
    rounds: int
    seconds: float
    scratch: Path
    tools: Tools
    results: Results
    say: Callable[[str], None]

    def start(self, stack: ExitStack, contestant: AbstractContextManager[Server]) -> list[Server]:
        """Start one contestant for as long as the stack lives: none, with a note, if it does not come up."""
        try:
            return [stack.enter_context(contestant)]
        except ServerError as error:
            self.results.note(f"left out, it did not start: {error}")
            return []

    def interleave(self, scenario: str, measurements: Sequence[Measurement]) -> None:
        """Take every measurement once per round, in the same order; leave out what fails, with a note."""
        failed: set[Measurement] = set()
        for round_number in range(1, self.rounds + 1):
            for measurement in measurements:
                if measurement in failed:
                    continue
                what = f"{scenario}, {measurement.case}, {measurement.contestant}"
                self.say(f"round {round_number} of {self.rounds}: {what}")
                try:
                    sample = measurement.take()
                except (LoadError, MetricMissingError) as error:
                    self.results.note(f"{what}: {error}")
                    self.results.discard(scenario, measurement.case, measurement.contestant)
                    failed.add(measurement)
                else:
                    self.results.add(scenario, measurement.case, measurement.contestant, sample)


class Meter:
    """The cost of a server from now until a tally is in."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._before = server.usage()

    def sample(self, tally: Tally) -> Sample:
        after = self._server.usage()
        return Sample(
            messages=tally.messages,
            seconds=tally.seconds,
            cpu_seconds=after.cpu_seconds - self._before.cpu_seconds,
            rss_bytes=after.rss_bytes,
        )
