"""What is asked of every contestant."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.compare.contestants.contestant import Contestant, Load
from bench.compare.contestants.danube import DanubeService
from bench.compare.turn import Turn

SMALL, LARGE = 128, 1024
PRODUCERS = (1, 16)
CONSUMERS = 4
TOPICS = 1000
LOAD_SHARE = 0.1
COMMON_RATE = 1000


@dataclass(frozen=True, slots=True)
class Workload:
    name: str
    title: str
    perform: Callable[[Turn], None]
    reads_only: bool = False
    """Whether durability plays no part, so that one contestant per peer is enough."""

    def admits(self, contestant: Contestant) -> bool:
        if contestant.publishes_only:
            return self.perform is _publish
        return contestant.reads or not self.reads_only


def publish_case(size: int, producers: int) -> str:
    return f"{size} B, {producers} producer{'s' if producers > 1 else ''}"


def fan_out_case(size: int) -> str:
    return f"{size} B, 1 → {CONSUMERS}"


def catch_up_case(size: int) -> str:
    return f"{size} B"


SHARE_CASE = f"{LARGE} B, {LOAD_SHARE:.0%} of its own publish rate"
COMMON_CASE = f"{LARGE} B, {COMMON_RATE:,} messages a second"
ONE_TOPIC, MANY_TOPICS = "1 topic", f"{TOPICS:,} topics"
EMPTY = "empty"
CROWDED = "many idle topics and connections"


def _publish(turn: Turn) -> None:
    for size in (SMALL, LARGE):
        for producers in PRODUCERS:
            load = Load(topic=f"publish{size}x{producers}", size=size, count=0, producers=producers)
            turn.slice(publish_case(size, producers), turn.service.publish, load)


def _fan_out(turn: Turn) -> None:
    for size in (SMALL, LARGE):
        load = Load(topic=f"fanout{size}", size=size, count=0, consumers=CONSUMERS)
        turn.slice(fan_out_case(size), turn.service.fan_out, load)


def _catch_up(turn: Turn) -> None:
    for size in (SMALL, LARGE):
        load = Load(topic=f"catchup{size}", size=size, count=turn.effort.catch_up_messages)
        turn.unmeasured(catch_up_case(size), turn.service.publish, load)
        turn.exactly(catch_up_case(size), turn.service.consume, load)


def _latency(turn: Turn) -> None:
    # First, because finding out the share writes gigabytes with some and megabytes with others, and what is left to do of
    # them goes on beside what is measured next.
    turn.at_rate(COMMON_CASE, COMMON_RATE, Load(topic="latency", size=LARGE, count=0))
    turn.at_share(SHARE_CASE, LOAD_SHARE, Load(topic="latency", size=LARGE, count=0))


def _topics(turn: Turn) -> None:
    turn.slice(ONE_TOPIC, turn.service.publish, Load(topic="one", size=SMALL, count=0))
    many = Load(topic="many", size=SMALL, count=0, topics=TOPICS)
    turn.slice(MANY_TOPICS, turn.service.publish, many, sized_like=ONE_TOPIC)


def _idle(turn: Turn) -> None:
    turn.rest(EMPTY)
    if isinstance(turn.service, DanubeService):
        with turn.service.crowd(topics=turn.effort.idle_topics, connections=turn.effort.idle_connections):
            turn.rest(CROWDED)


WORKLOADS = (
    Workload("publish", "Publish", _publish),
    Workload("fanout", f"Fan-out, 1 producer to {CONSUMERS} consumers", _fan_out),
    Workload("catchup", "Catch-up: read what lies there", _catch_up, reads_only=True),
    Workload("latency", "End-to-end latency", _latency),
    Workload("topics", "Many topics", _topics),
    Workload("idle", "Start-up and idle memory", _idle, reads_only=True),
)
