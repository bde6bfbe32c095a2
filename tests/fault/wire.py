"""A line between native clients and their broker that is cut, also in the middle of a frame, and held up on demand."""

import asyncio
import random
from contextlib import suppress

CHUNK_BYTES = 64 * 1024
CUT_AFTER_BYTES_FEW = 100
CUT_AFTER_BYTES_MAX = 20_000


class Link:
    """One connection: what one side says is passed on to the other, until the cut."""

    def __init__(self, client: asyncio.StreamWriter, broker: asyncio.StreamWriter) -> None:
        self._client = client
        self._broker = broker
        self._is_free = asyncio.Event()
        self._is_free.set()
        self._left: dict[asyncio.StreamWriter, int] = {}

    async def pass_on(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Pass on until the end, or until as many bytes as the cut leaves."""
        while data := await source.read(CHUNK_BYTES):
            await self._is_free.wait()
            left = self._left.get(target)
            if left is not None and left <= len(data):
                target.write(data[:left])
                with suppress(TimeoutError):
                    await asyncio.wait_for(target.drain(), 0.1)
                self.cut()
                return
            if left is not None:
                self._left[target] = left - len(data)
            target.write(data)
            await target.drain()

    def cut(self) -> None:
        """Both sides see a connection that is reset."""
        for writer in (self._client, self._broker):
            writer.transport.abort()

    def cut_after(self, dice: random.Random) -> None:
        """Cut later, after a few more bytes in one direction: most likely within a frame."""
        target = dice.choice((self._client, self._broker))
        # Answers are a few bytes, messages many: either may be cut.
        self._left[target] = dice.randrange(dice.choice((CUT_AFTER_BYTES_FEW, CUT_AFTER_BYTES_MAX)))

    def hold(self) -> None:
        self._is_free.clear()

    def release(self) -> None:
        self._is_free.set()

    def close(self) -> None:
        """One side is gone: let the other have what was on its way."""
        self._is_free.set()
        for writer in (self._client, self._broker):
            writer.close()


class Wire:
    """Listens where the broker's native clients dial."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._links: list[Link] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.troubles = 0

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def trouble(self, dice: random.Random) -> None:
        """Do one thing to one connection, or hold all of them up for a moment."""
        if not self._links:
            return
        self.troubles += 1
        link = dice.choice(self._links)
        kind = dice.random()
        if kind < 0.4:
            link.cut()
        elif kind < 0.8:
            link.cut_after(dice)
        else:
            held = list(self._links)
            for link in held:
                link.hold()
            await asyncio.sleep(dice.uniform(0.0, 1.5))
            for link in held:
                link.release()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            pass  # Only `close` does that, and a cancelled task of a server is reported as an error.
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            broker_reader, broker_writer = await asyncio.open_connection(self._host, self._port)
        except OSError:
            return  # No broker: the client sees its connection closed.
        link = Link(writer, broker_writer)
        self._links.append(link)
        try:
            ways = (link.pass_on(reader, broker_writer), link.pass_on(broker_reader, writer))
            running = [asyncio.create_task(way) for way in ways]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            link.close()
            for way in running:
                way.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            with suppress(ConnectionError, TimeoutError):
                await asyncio.wait_for(writer.wait_closed(), 1)
        finally:
            self._links.remove(link)
            broker_writer.transport.abort()
