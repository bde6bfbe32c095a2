"""Durable publish (fsync before every answer) next to the disk's own rate.

Each slice of the broker is followed by a C loop that writes the same number of bytes per sync, in the
same directory: the two differ only in what stands between a producer and the disk. The loop waits until
the broker has tidied up after its slice, or that work would slow the yardstick down.
"""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench import servers
from bench.danube_api import PublishRequest, connected, read_counter
from bench.disk import measure_syncs
from bench.load import LoadError, Shape, publish
from bench.plan import Measurement, Meter, Plan
from bench.processes import await_quiet_disk
from bench.results import Sample
from bench.servers import Server

SCENARIO = "durable"
DISK = "C loop on the disk"
TOPIC = "/default/bench_durable"
PAYLOAD_BYTES = 1024
PRODUCERS = (1, 16, 64)
COMMITS = "danube_wal_flush_total"
COMMIT_BYTES = "danube_wal_append_bytes_total"
BLOCK_BYTES = 4096
WARM_UP_MESSAGES = 2_000


def case_name(producers: int) -> str:
    return f"{producers} producer{'s' if producers > 1 else ''}"


CASES = {case_name(producers): Shape(producers, 1) for producers in PRODUCERS}
"""Producers as Danube clients are: a connection each, one call in flight."""
CASES["64 calls on 4 connections"] = Shape(4, 16)
"""As many in flight with fewer sockets to serve: tells the cost of connections from that of commits."""


def run(plan: Plan) -> None:
    probe = plan.tools.disk_probe
    if not plan.tools.h2load or probe is None:
        return
    with ExitStack() as stack:
        for broker in plan.start(stack, servers.running_broker(plan.scratch)):
            with connected(broker.address) as api:
                producer_id = api.create_producer(TOPIC, "bench", reliable=True)
            request = PublishRequest.write(
                plan.scratch, producer_id=producer_id, topic=TOPIC, payload_bytes=PAYLOAD_BYTES
            )
            plan.say("warming up the journal")
            publish(broker.address, request, Shape(64, 1), count=WARM_UP_MESSAGES)
            measurements = []
            for case, shape in CASES.items():
                pair = _Pair(plan, broker, request, probe, shape)
                measurements.append(Measurement(case, broker.name, pair.publish_durably))
                measurements.append(Measurement(case, DISK, pair.sync_as_much))
            plan.interleave(SCENARIO, measurements)


class _Pair:
    """A slice of durable publishing, then the disk alone with the same bytes per sync."""

    def __init__(
        self, plan: Plan, broker: Server, request: PublishRequest, probe: Path, shape: Shape
    ) -> None:
        self._plan = plan
        self._broker = broker
        self._request = request
        self._probe = probe
        self._shape = shape
        self._bytes_per_sync = 0

    def publish_durably(self) -> Sample:
        counter = partial(read_counter, self._broker.metrics_address)
        commits, commit_bytes = counter(COMMITS), counter(COMMIT_BYTES)
        meter = Meter(self._broker)
        tally = publish(self._broker.address, self._request, self._shape, seconds=self._plan.seconds)
        sample = meter.sample(tally)
        sample = replace(
            sample,
            commits=int(counter(COMMITS) - commits),
            commit_bytes=int(counter(COMMIT_BYTES) - commit_bytes),
        )
        # The journal writes whole blocks, and so does the file system underneath the C loop.
        self._bytes_per_sync = -(-sample.commit_bytes // sample.commits // BLOCK_BYTES) * BLOCK_BYTES
        return sample

    def sync_as_much(self) -> Sample:
        if not self._bytes_per_sync:
            raise LoadError("not measured, since the broker's commits are unknown")
        if not await_quiet_disk(self._broker.pid):
            self._plan.results.note("the broker was still writing while the disk alone was measured")
        return measure_syncs(
            self._probe,
            self._plan.scratch,
            bytes_per_sync=self._bytes_per_sync,
            seconds=self._plan.seconds,
        )
