"""One contestant's turn in one round of one workload."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bench.compare.contestants.contestant import Contestant, Load, NotApplicableError, Service
from bench.compare.outputs import Outcome
from bench.compare.samples import Absence, LoadSample
from bench.load import LoadError
from bench.results import Results

Action = Callable[[Load], Outcome]

PILOT_GROWTH = 8
PILOT_SECONDS_MIN = 0.5
WARM_RATE_GAIN_MAX = 1.25
"""Who gets faster by more than this from one slice to the next is still warming up."""
SLICES_TO_WARM_UP_MAX = 4
SLICE_MESSAGES_MIN = 2_000
MESSAGES_PER_TOPIC_MIN = 20
"""Fewer, and what is measured is the opening of topics."""
SLICE_BYTES_MAX = 2 << 30
"""So that a disk of ordinary size holds what a whole run writes, and our broker, which makes segments of it afterwards, never has more
waiting than it takes by default; a second or more of whoever is quickest."""
PACED_MESSAGES_MIN = 500
PACED_SECONDS_MIN = 4.0
"""A tool on a virtual machine needs seconds, not messages, to get warm; a rate does not make it hurry."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is asked of everyone."""

    rounds: int
    seconds: float
    """How long a slice of load should last; the tools count messages, so a pilot finds out how many."""
    catch_up_messages: int
    idle_topics: int
    idle_connections: int
    settle_seconds: float = 2.0


@dataclass(slots=True)
class Findings:
    """Everything the run has found out so far."""

    results: Results = field(default_factory=Results)
    absences: list[Absence] = field(default_factory=list)
    rates: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Messages a second of earlier rounds, which size the slices of later ones."""

    def miss(self, workload: str, case: str, contestant: str, reason: str) -> None:
        """Note an absence once; what a failed contestant has left of the case is not comparable."""
        self.results.discard(workload, case, contestant)
        absence = Absence(workload, case, contestant, reason)
        if not self.is_missing(workload, case, contestant):
            self.absences.append(absence)

    def is_missing(self, workload: str, case: str, contestant: str) -> bool:
        where = (workload, case, contestant)
        return any((known.workload, known.case, known.contestant) == where for known in self.absences)


class Turn:
    def __init__(
        self,
        workload: str,
        contestant: Contestant,
        service: Service,
        *,
        effort: Effort,
        findings: Findings,
        say: Callable[[str], None],
    ) -> None:
        self.contestant = contestant
        self.service = service
        self.effort = effort
        self._workload = workload
        self._findings = findings
        self._say = say

    def slice(self, case: str, action: Action, load: Load, *, sized_like: str | None = None) -> None:
        """Warm up, then measure a slice of about `effort.seconds`; a failure ends this case only.

        With `sized_like`, the slice has as many messages as that case's, which was measured before.
        """
        self._attempt(case, lambda: self._sized(case, action, load, sized_like or case))

    def exactly(self, case: str, action: Action, load: Load) -> None:
        """Measure the very number of messages the load says."""
        self._attempt(case, lambda: self._measure(case, action, load))

    def unmeasured(self, case: str, action: Action, load: Load) -> None:
        """Prepare a case: what fails here is missing there."""
        self._attempt(case, lambda: action(load))

    def at_share(self, case: str, share: float, load: Load) -> None:
        """Latency at a share of the rate this contestant publishes with when nothing holds it back."""

        def paced() -> None:
            rate = self._warm_rate(self._key(case), self.service.publish, load)
            self._findings.rates[self._key(case)] = rate
            self._paced(case, load, max(1, round(rate * share)))

        self._attempt(case, paced)

    def at_rate(self, case: str, rate: int, load: Load) -> None:
        self._attempt(case, lambda: self._paced(case, load, rate))

    def rest(self, case: str) -> None:
        """Weigh a server that does nothing."""
        self._say(case)
        time.sleep(self.effort.settle_seconds)
        usage = self.service.server.usage()
        sample = LoadSample(
            messages=0, seconds=0, rss_bytes=usage.rss_bytes, start_seconds=self.service.server.start_seconds
        )
        self._findings.results.add(self._workload, case, self.contestant.name, sample)

    def _attempt(self, case: str, work: Callable[[], object]) -> None:
        if self._findings.is_missing(self._workload, case, self.contestant.name):
            return
        self._say(case)
        try:
            work()
        except (LoadError, NotApplicableError) as error:
            self._findings.miss(self._workload, case, self.contestant.name, str(error))

    def _sized(self, case: str, action: Action, load: Load, like: str) -> None:
        rate = self._warm_rate(self._key(like), action, load)
        count = max(_bounded(rate * self.effort.seconds, load), load.topics * MESSAGES_PER_TOPIC_MIN)
        outcome = self._measure(case, action, replace(load, count=count))
        if like == case:
            self._findings.rates[self._key(case)] = outcome.rate / load.consumers

    def _warm_rate(self, key: tuple[str, str, str], action: Action, load: Load) -> float:
        """The rate to size a slice by; finding it warms up the server, and the page cache under the tool."""
        known = self._findings.rates.get(key)
        if known is not None:
            action(replace(load, count=_bounded(known * self.effort.seconds / 4, load), rate=0))
            return known
        rate = self._pilot(action, load)
        for _ in range(SLICES_TO_WARM_UP_MAX):
            before, count = rate, _bounded(rate * self.effort.seconds / 2, load)
            rate = count / action(replace(load, count=count, rate=0)).seconds
            if rate <= before * WARM_RATE_GAIN_MAX:
                break
        return rate

    def _pilot(self, action: Action, load: Load) -> float:
        count = self.contestant.pilot_messages
        count_max = SLICE_BYTES_MAX // load.size
        while True:
            outcome = action(replace(load, count=count, rate=0))
            if outcome.seconds >= PILOT_SECONDS_MIN or count >= count_max:
                return count / outcome.seconds
            count = min(count * PILOT_GROWTH, count_max)

    def _paced(self, case: str, load: Load, rate: int) -> None:
        count = max(PACED_MESSAGES_MIN, round(rate * max(self.effort.seconds, PACED_SECONDS_MIN)))
        self._measure(case, self.service.latency, replace(load, count=count, rate=rate))

    def _measure(self, case: str, action: Action, load: Load) -> Outcome:
        # What a server has put off, such as moving what was published to where it stays, is not part of this slice.
        self.service.server.settle()
        before = self.service.server.usage()
        outcome = action(load)
        after = self.service.server.usage()
        sample = LoadSample(
            messages=outcome.messages,
            seconds=outcome.seconds,
            cpu_seconds=after.cpu_seconds - before.cpu_seconds,
            rss_bytes=after.rss_bytes,
            size=load.size,
            rate_asked=load.rate,
            p50_us=outcome.p50_us,
            p99_us=outcome.p99_us,
            p999_us=outcome.p999_us,
            command=self.service.last_command,
        )
        self._findings.results.add(self._workload, case, self.contestant.name, sample)
        return outcome

    def _key(self, case: str) -> tuple[str, str, str]:
        return self._workload, case, self.contestant.name


def _bounded(messages: float, load: Load) -> int:
    return min(max(round(messages), SLICE_MESSAGES_MIN), SLICE_BYTES_MAX // load.size)
