"""Carries out a plan: its stages one after the other, and the broker's CPU beside them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydanube.bench.broker_cpu import await_quiet, cpu_seconds, pid_of_listener
from pydanube.bench.crew import Crew, Ending
from pydanube.bench.plan import VERIFIED_COUNT_MAX, Plan, Protocol, dealt
from pydanube.bench.progress import Shown, quiet
from pydanube.bench.worker import Kind, Outcome, Share
from pydanube.kernel.errors import Rejected, Unavailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What came out of the stage that was measured."""

    outcome: Outcome
    broker_cpu_seconds: float | None
    """None for a broker that is elsewhere."""
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class Conductor:
    """What all stages of a run have in common."""

    broker_pid: int | None
    patience_seconds: float
    shown: Shown = quiet

    def publish(self, plan: Plan) -> Result:
        hands = dealt(plan.streams(), plan.processes)
        connections = _connections(plan, len(hands))
        shares = [
            Share(kind=Kind.PUBLISH, plan=plan, streams=streams, connections=connections) for streams in hands
        ]
        return self._stage("Publishing", shares, plan.count)

    def latency(self, plan: Plan) -> Result:
        share = Share(kind=Kind.LATENCY, plan=plan, connections=plan.connections)
        return self._stage("Receiving", [share], plan.count * plan.subscriptions)

    def consume(self, plan: Plan, *, fill: Protocol | None) -> Result:
        """Read what the topics hold; with `fill`, put it there first, by that protocol."""
        if plan.count * plan.subscriptions > VERIFIED_COUNT_MAX:
            raise Rejected(
                f"--count {plan.count:,} for {plan.subscriptions} subscriptions is too much to verify in one run:"
                f" together at most {VERIFIED_COUNT_MAX:,}"
            )
        checksums: Mapping[str, int] = {}
        if fill is not None:
            filled = self._fill(plan, fill)
            if filled.ending is Ending.INTERRUPTED:
                raise KeyboardInterrupt
            if missing := plan.count - filled.outcome.measured.messages:
                texts = "; ".join(filled.outcome.measured.error_texts) or "the broker stopped answering"
                raise Unavailable(f"filling the topics failed for {missing:,} messages: {texts}")
            checksums = filled.outcome.checksums
            if self.broker_pid is not None:
                await_quiet(self.broker_pid)
        hands = dealt(plan.groups(), plan.processes)
        connections = _connections(plan, len(hands))
        shares = [
            Share(kind=Kind.CONSUME, plan=plan, groups=groups, checksums=checksums, connections=connections)
            for groups in hands
        ]
        return self._stage("Reading", shares, plan.count * plan.subscriptions)

    def _fill(self, plan: Plan, protocol: Protocol) -> Result:
        # One producer per topic keeps the order known.
        filling = plan.with_(producers=plan.topics, protocol=protocol, rate=0.0, warmup=0)
        # Over gRPC a subscription begins with the next message, so the readers' are made by the filler.
        groups = plan.groups() if plan.protocol is Protocol.GRPC else []
        share = Share(kind=Kind.FILL, plan=filling, streams=filling.streams(), groups=groups)
        return self._stage("Filling", [share], plan.count)

    def _stage(self, title: str, shares: list[Share], messages: int) -> Result:
        with Crew(shares, patience_seconds=self.patience_seconds) as crew:
            crew.prepare()
            before = self._cpu_seconds()
            with self.shown(title, messages) as show:
                outcome, ending = crew.run(show)
            after = self._cpu_seconds()
        spent = after - before if after is not None and before is not None else None
        return Result(outcome=outcome, broker_cpu_seconds=spent, ending=ending)

    def _cpu_seconds(self) -> float | None:
        if self.broker_pid is None:
            return None
        try:
            return cpu_seconds(self.broker_pid)
        except OSError:
            return None


def _connections(plan: Plan, processes: int) -> int:
    """Of each process: at least one."""
    return max(1, -(-plan.connections // processes))


def local_broker(plan: Plan) -> int | None:
    """The broker's process if it runs on this machine."""
    return pid_of_listener(plan.broker.host, plan.broker.port)
