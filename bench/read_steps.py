"""`python -m bench.read_steps`: where the client's CPU goes while it reads what lies there, step by step.

Batches as a broker delivers them, on their way from the socket into the application's hands, each step alone and as the
client takes it: CPU microseconds a message, of the thread that takes the step. All steps take turns in every round; least
and median of the rounds are shown, for on a shared machine everything else only adds. The batches form a ring larger than
the caches. Left out is what happens once per batch or read: wakes, credit, the event loop's books.
"""

import json
import random
import socket
import time
from collections.abc import Callable
from statistics import median
from types import SimpleNamespace
from typing import Any, Final

import click
import pyarrow as pa
from crc32c import crc32c

from bench.partner import partner
from pydanube.client.incoming import Delivery, IncomingFrames
from pydanube.client.message import Unpacked
from pydanube.protocol.native import arrow, frames
from pydanube.protocol.native.batch import read_layout
from pydanube.protocol.native.bodies import Item, encode_item_header
from pydanube.protocol.native.frames import FrameReader, encode_frame
from pydanube.protocol.native.head import decode_head
from pydanube.protocol.native.payload_batch import encode_payload_batch
from pydanube.protocol.native_pb2 import BatchHead

RING_BYTES: Final = 48 << 20
READ_BYTES: Final = 256 * 1024
"""What an event loop reads at a time when it brings its own buffer."""
TOPIC: Final = "/default/bench"

Step = Callable[[], int]
"""Does its work once and says for how many messages."""


class Reading:
    """The same messages in every form they have on their way."""

    def __init__(self, size: int, batch: int) -> None:
        dice = random.Random(7)
        head = BatchHead(producer_id=1, producer_name="bench", publish_time=1_700_000_000_000)
        self.batch = batch
        self.items = []
        for number in range(max(4, RING_BYTES // (size * batch))):
            payloads = [dice.randbytes(size) for _ in range(batch)]
            body = b"".join(encode_payload_batch(payloads, head.SerializeToString()))
            self.items.append(Item(number * batch, 1_700_000_000_000, 0, batch, 1, body))
        self._turn = 0

    def frame(self) -> bytes:
        item = self.items[0]
        header = encode_item_header(*item[:5], len(item.body))
        return encode_frame(frames.DELIVER, 1, 0, header + item.body)

    def next_item(self) -> Item:
        """The one that was not touched for longest."""
        self._turn = (self._turn + 1) % len(self.items)
        return self.items[self._turn]


def steps(work: Reading, giver: socket.socket, giver_of_chunks: socket.socket) -> dict[str, Step]:
    incoming = IncomingFrames()
    cutter = FrameReader(frames.FRAME_BYTES_MAX)
    feed: Any = SimpleNamespace(topic=TOPIC, generation=0)
    held: list[Item] = list(work.items)
    """What was received lies somewhere else than what came before it, as with a client that prefetches."""
    delivered = [arrow.delivered_batch(item, TOPIC) for item in work.items[:4]]

    def received() -> int:
        count = 0
        for frame in incoming.received(giver.recv_into(incoming.room())):
            if isinstance(frame, Delivery):
                held[work.next_item().base // work.batch] = frame.items[0]
                count += work.batch
        return count

    def received_in_chunks() -> int:
        whole = cutter.receive(giver_of_chunks.recv(READ_BYTES))
        for frame in whole:
            held[work.next_item().base // work.batch] = Item(0, 0, 0, work.batch, 1, frame.body[32:])
        return work.batch * len(whole)

    def opened() -> int:
        decode_head(read_layout(work.next_item().body))
        return work.batch

    def checked() -> int:
        arrow.decode_record_batch(work.next_item().body)
        return work.batch

    def made_batch() -> int:
        arrow.delivered_batch(work.next_item(), TOPIC)
        return work.batch

    def acked() -> int:
        offsets = delivered[work.next_item().base // work.batch % 4].column("offset").drop_null()
        first = offsets[0].as_py()
        pa.arange(first, first + len(offsets)).equals(offsets)
        return work.batch

    def made_messages() -> int:
        for message in Unpacked.batch(feed, work.next_item()).messages:
            message.payload  # noqa: B018
        return work.batch

    def summed() -> int:
        crc32c(work.next_item().body)
        return work.batch

    return {
        "receive and cut, one buffer": received,
        "(in chunks, joined, as before)": received_in_chunks,
        "header and head": opened,
        "columns, checked": checked,
        "whole record batch": made_batch,
        "(messages one by one instead)": made_messages,
        "offsets to ack": acked,
        "(a checksum of everything)": summed,
    }


def account(size: int, batch: int, rounds: int) -> dict[str, tuple[float, float]]:
    """Least and median of the microseconds a message, by step."""
    work = Reading(size, batch)
    spent: dict[str, list[float]] = {}
    with partner(work.frame()) as giver, partner(work.frame()) as giver_of_chunks:
        taken = steps(work, giver, giver_of_chunks)
        for _ in range(rounds):
            for name, step in taken.items():
                messages = 0
                begin = time.thread_time_ns()
                while messages < 4 * batch:
                    messages += step()
                spent.setdefault(name, []).append((time.thread_time_ns() - begin) / 1_000 / messages)
    return {name: (min(each), median(each)) for name, each in spent.items()}


@click.command()
@click.option("--size", "sizes", multiple=True, type=click.IntRange(1, 65_536), default=(128, 1024))
@click.option("--batch", type=click.IntRange(1, 10_000), default=1000, help="Messages in one batch.")
@click.option("--rounds", type=click.IntRange(1, 10_000), default=40)
@click.option("--json", "as_json", is_flag=True, help="Print a document instead of a table.")
def main(sizes: tuple[int, ...], batch: int, rounds: int, as_json: bool) -> None:
    """Account for the client's CPU of a catch-up read: microseconds a message, least and median of the rounds."""
    accounts = {size: account(size, batch, rounds) for size in sizes}
    if as_json:
        click.echo(json.dumps(accounts, indent=2))
        return
    for size, spent in accounts.items():
        click.echo(f"batches of {batch:,} × {size:,} B{'least':>20}{'median':>10}")
        for name, (least, middle) in spent.items():
            click.echo(f"  {name:<34}{least:>9.3f}{middle:>10.3f}")


if __name__ == "__main__":
    main()
