"""`python -m bench.publish_steps`: where the CPU of a durable publish goes, step by step, on either side.

A list of messages on its way from the application's hands into a run, each step alone and as the product takes it:
CPU microseconds a message, of the thread that takes the step. All steps take turns in every round; least and median of
the rounds are shown, for on a shared machine everything else only adds. The batches form a ring larger than the caches,
as those do that a broker holds until they are staged. Left out is what happens once per batch or commit: answers, wakes,
books.
"""

import asyncio
import json
import random
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

import click
from rich.console import Console
from rich.table import Table

from bench.partner import partner
from pydanube.client.encoding import Common, Sender, encode_columns, encode_payloads
from pydanube.client.outgoing import UNTIMED
from pydanube.client.producer import chunks
from pydanube.entries.blocks import Blocks
from pydanube.entries.disk import LocalDisk, write_all
from pydanube.entries.entry import Kind, encode_header
from pydanube.entries.run_file import encode_run
from pydanube.entries.run_store import LocalRunStore
from pydanube.kernel.names import TopicName
from pydanube.log.group import encode_group
from pydanube.protocol.native import frames
from pydanube.protocol.native.checking import check_batch
from pydanube.protocol.native.frames import FrameReader, publish_header
from pydanube.server.process import tune_process
from pydanube.wire.native_server import RECEIVE_BUFFER_BYTES

RING_BYTES: Final = 48 << 20
GROUP_BATCHES: Final = 4
"""Batches that one commit of the journal takes along."""
BUFFERS_PER_SEND_MAX: Final = 1024
TOPIC: Final = TopicName.parse("/default/bench")

Step = Callable[[], int]
"""Does its work once and says for how many messages."""


@dataclass(frozen=True, slots=True)
class Account:
    """What one step takes of a message."""

    side: str
    step: str
    us_min: float
    us_median: float


class Publishing:
    """The same messages in every form they have on their way."""

    def __init__(self, size: int, batch: int) -> None:
        dice = random.Random(7)
        count = max(GROUP_BATCHES, RING_BYTES // (size * batch))
        count -= count % GROUP_BATCHES
        self.batch = batch
        self.lists = [[dice.randbytes(size) for _ in range(batch)] for _ in range(count)]
        self.sender = Sender(1, "bench", "/default/bench")
        self.common = Common(1_700_000_000_000, UNTIMED)
        self.bodies = [b"".join(self.parts(payloads)) for payloads in self.lists]
        self.heads = [self.head(number) for number in range(count)]
        self._turn = 0

    def parts(self, payloads: list[bytes]) -> list[bytes]:
        return encode_payloads(self.sender, payloads, self.common, None)

    def head(self, number: int) -> bytes:
        return encode_header(Kind.BATCH, self.bodies[number], self.batch, 1, number * self.batch, 1, 0, 0, 1)

    def turn(self) -> int:
        """The batch that was not touched for longest."""
        self._turn = (self._turn + 1) % len(self.lists)
        return self._turn

    def group(self) -> list[bytes]:
        """What some appends hand over to the journal's thread."""
        first = self.turn() // GROUP_BATCHES * GROUP_BATCHES
        numbers = range(first, first + GROUP_BATCHES)
        return [part for number in numbers for part in (self.heads[number], self.bodies[number])]


def _send(ours: socket.socket, parts: list[bytes]) -> None:
    for first in range(0, len(parts), BUFFERS_PER_SEND_MAX):
        rest = parts[first : first + BUFFERS_PER_SEND_MAX]
        missing = sum(map(len, rest)) - ours.sendmsg(rest)
        if missing:
            ours.sendall(b"".join(rest)[-missing:])


def client_steps(work: Publishing, taker: socket.socket) -> dict[str, Step]:
    def checked() -> int:
        return sum(len(chunk.payloads) for chunk in chunks(work.lists[work.turn()]))

    def encoded() -> int:
        work.parts(work.lists[work.turn()])
        return work.batch

    def encoded_by_arrow() -> int:
        encode_columns(work.sender, work.lists[work.turn()], work.common, None)
        return work.batch

    def sent() -> int:
        number = work.turn()
        parts = parts_of[number]
        _send(taker, [publish_header(1, 1, 1, sum(map(len, parts))), *parts])
        return work.batch

    parts_of = [work.parts(payloads) for payloads in work.lists]
    return {
        "look at the list": checked,
        "make the batch": encoded,
        "(by Arrow, as batches with more columns)": encoded_by_arrow,
        "send": sent,
    }


def broker_steps(work: Publishing, giver: socket.socket, folder: Path) -> dict[str, Step]:
    reader = FrameReader(frames.FRAME_BYTES_MAX, buffer=memoryview(bytearray(RECEIVE_BUFFER_BYTES)))
    disk = LocalDisk()
    size = RING_BYTES + (RING_BYTES >> 2)
    journal = disk.create(folder / "journal")
    disk.allocate(journal, size)
    disk.bypass_cache(journal, True)
    blocks = Blocks(8 << 20)
    store = LocalRunStore(folder / "runs", disk)
    run_buffers, _ = encode_run(work.heads, work.bodies, created_ms=0)
    place = {"journal": 0}
    taken: list[bytes] = [b""] * len(work.lists)

    def received() -> int:
        whole = reader.received(giver.recv_into(reader.room()))
        for frame in whole:
            taken[work.turn()] = frame.body
        return work.batch * len(whole)

    def checked() -> int:
        return check_batch(work.bodies[work.turn()]).count

    def appended() -> int:
        work.head(work.turn())
        return work.batch

    def grouped() -> int:
        _group(work.group(), 0)
        return work.batch * GROUP_BATCHES

    def written() -> int:
        parts, length = _group(work.group(), 0)
        if place["journal"] + length > size:
            place["journal"] = 0
        begin = time.thread_time_ns()
        for piece in blocks.filled(parts):
            place["journal"] = write_all(disk, journal, [piece], place["journal"], sync=True)
        return _Timed(work.batch * GROUP_BATCHES, time.thread_time_ns() - begin)

    def staged() -> int:
        encode_run(work.heads, work.bodies, created_ms=0)
        return work.batch * len(work.bodies)

    def run_written() -> int:
        # In a thread of the store's own, which the process's clock counts and the thread's does not.
        begin = time.process_time_ns()
        asyncio.run(store.write(TOPIC, "run", run_buffers))
        return _Timed(work.batch * len(work.bodies), time.process_time_ns() - begin)

    return {
        "receive and cut into frames": received,
        "check the batch": checked,
        "entry header, CRC of the body": appended,
        "group header, CRC of all": grouped,
        "write to the journal, synced": written,
        "run: CRC of all": staged,
        "(run: write, synced, where the journal's file is not kept)": run_written,
    }


class _Timed(int):
    """A number of messages, and the nanoseconds that count instead of the whole call's."""

    nanoseconds: int

    def __new__(cls, messages: int, nanoseconds: int) -> "_Timed":
        timed = super().__new__(cls, messages)
        timed.nanoseconds = nanoseconds
        return timed


def _group(buffers: list[bytes], position: int) -> tuple[list[bytes | memoryview], int]:
    return encode_group(
        buffers,
        count=GROUP_BATCHES,
        journal_id=1,
        file_sequence=1,
        group_sequence=1,
        synced_group=0,
        position=position,
    )


def accounts(size: int, batch: int, rounds: int, messages: int, folder: Path) -> list[Account]:
    work = Publishing(size, batch)
    body = work.bodies[0]
    frame = publish_header(1, 1, 1, len(body)) + body
    with partner() as taker, partner(frame) as giver:
        sides = {"client": client_steps(work, taker), "broker": broker_steps(work, giver, folder)}
        spent: dict[tuple[str, str], list[float]] = {}
        for _ in range(rounds):
            for side, steps in sides.items():
                for name, step in steps.items():
                    spent.setdefault((side, name), []).append(_us_per_message(step, messages))
    return [Account(side, name, min(us), median(us)) for (side, name), us in spent.items()]


def _us_per_message(step: Step, messages: int) -> float:
    done = spent_ns = 0
    while done < messages:
        begin = time.thread_time_ns()
        some = step()
        spent_ns += some.nanoseconds if isinstance(some, _Timed) else time.thread_time_ns() - begin
        done += some
    return spent_ns / 1_000 / done


@click.command()
@click.option("--size", "sizes", type=int, multiple=True, default=(1024, 128), show_default=True)
@click.option("--batch", default=1000, show_default=True, help="Messages of a batch.")
@click.option("--rounds", default=7, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="On the disk to be written to.")
@click.option("--output", type=click.Choice(["table", "json"]), default="table", show_default=True)
def main(sizes: tuple[int, ...], batch: int, rounds: int, folder: Path | None, output: str) -> None:
    """Account for the CPU of a durable publish, step by step."""
    tune_process()
    found: dict[int, list[Account]] = {}
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for size in sizes:
            place = Path(scratch) / str(size)
            place.mkdir()
            found[size] = accounts(size, batch, rounds, RING_BYTES // size, place)
    if output == "json":
        print(json.dumps({size: [asdict(each) for each in them] for size, them in found.items()}, indent=2))
        return
    for size, them in found.items():
        Console().print(_table(size, batch, them))


def _table(size: int, batch: int, them: list[Account]) -> Table:
    table = Table(title=f"{size} B in batches of {batch}: CPU µs a message")
    table.add_column("side")
    table.add_column("step")
    table.add_column("least", justify="right")
    table.add_column("median", justify="right")
    for each in them:
        table.add_row(each.side, each.step, f"{each.us_min:.3f}", f"{each.us_median:.3f}")
    return table


if __name__ == "__main__":
    main()
