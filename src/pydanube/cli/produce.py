"""`danube produce`: publish messages from the command line."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import click

from pydanube.cli.credentials import credential_options, open_client, open_grpc_client
from pydanube.cli.failures import INTERRUPTED, Url, run_async
from pydanube.cli.messages import messages_output_option
from pydanube.cli.tables import show_record
from pydanube.kernel.errors import DanubeError

if TYPE_CHECKING:
    from pydanube.client.schema_records import SchemaRef

INTERVAL_MS_MIN: Final = 100
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
PRODUCER_NAME: Final = "test_producer"
_BAR_FROM: Final = 50
"""At a terminal, this many messages get a progress bar instead of a line each."""


class Attributes(click.ParamType[dict[str, str]]):
    """`k:v,k2:v2`, each split at its first colon."""

    name = "k:v,..."

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        found: dict[str, str] = {}
        for part in value.split(","):
            name, colon, text = part.partition(":")
            if not colon or not name.strip():
                self.fail(f"{part!r} is no attribute: expected name:value", param, ctx)
            found[name.strip()] = text.strip()
        return found


@click.command()
@click.option(
    "-s",
    "--service-addr",
    type=Url(),
    required=True,
    help="Broker to connect to, e.g. danube://127.0.0.1:6650",
)
@credential_options("DANUBE")
@click.option("--protocol", type=click.Choice(["native", "grpc"]), default="native", show_default=True)
@click.option(
    "-n",
    "--producer-name",
    help="A name of its own lets lost sends be repeated without duplicates; one at a time may use it."
    f"  [default: {PRODUCER_NAME}]",
)
@click.option("-t", "--topic", default="/default/test_topic", show_default=True)
@click.option("-m", "--message", help="Text to send; required unless --file is given.")
@click.option(
    "-f", "--file", metavar="PATH", help="Send the bytes of a file instead; - sends each line of stdin."
)
@click.option(
    "--schema-subject", help="Schema subject the messages belong to, latest version unless one is named."
)
@click.option("--schema-version", type=click.IntRange(min=1), help="Exactly this version of the subject.")
@click.option(
    "--schema-min-version", type=click.IntRange(min=1), help="This version of the subject or a later one."
)
@click.option("--schema-file", type=click.Path(exists=True, dir_okay=False), help="Schema to register first.")
@click.option(
    "--schema-type", type=click.Choice(["json_schema", "avro", "protobuf"]), help="Kind of --schema-file."
)
@click.option("-a", "--attributes", type=Attributes(), help="Attributes of every message.")
@click.option("-k", "--key", help="Routing key: messages of one key keep their order, and share a partition.")
@click.option(
    "-p", "--partitions", type=click.IntRange(1, 1024), help="Publish to this many partitions of the topic."
)
@click.option(
    "-c", "--count", type=click.IntRange(min=1), help="How often to send the message.  [default: 1]"
)
@click.option(
    "-i",
    "--interval",
    type=click.IntRange(min=INTERVAL_MS_MIN),
    help="Milliseconds between messages.  [default: 500]",
)
@click.option(
    "--reliable", is_flag=True, help="Store messages until every subscription has acknowledged them."
)
@messages_output_option
def produce(**options: object) -> None:
    """Publish messages to a topic, which is created if it does not exist."""
    work = _Work(**options)  # type: ignore[arg-type]
    work.check()
    try:
        run_async(_produce(work))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


@dataclass(kw_only=True)
class _Work:
    """The options, and how far we are."""

    service_addr: str
    protocol: str
    producer_name: str | None
    topic: str
    message: str | None
    file: str | None
    schema_subject: str | None
    schema_version: int | None
    schema_min_version: int | None
    schema_file: str | None
    schema_type: str | None
    attributes: dict[str, str] | None
    key: str | None
    partitions: int | None
    count: int | None
    interval: int | None
    reliable: bool
    output: str
    sent: int = field(default=0, init=False)
    failed: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        return self.producer_name or PRODUCER_NAME

    @property
    def own_subject(self) -> str:
        """Of a schema that is registered first."""
        return self.topic.removeprefix("/").replace("/", "-")

    @property
    def from_stdin(self) -> bool:
        return self.file == "-"

    def check(self) -> None:
        """Refuse combinations that make no sense."""
        if self.message is None and self.file is None:
            raise click.UsageError("give a --message, or a --file")
        if self.from_stdin and self.count is not None:
            raise click.UsageError("--count does not go with --file -: each line of stdin is one message")
        if self.schema_file and self.schema_subject:
            raise click.UsageError("--schema-file registers its own subject: leave out --schema-subject")
        if bool(self.schema_file) != bool(self.schema_type):
            raise click.UsageError("--schema-file and --schema-type go together")
        if self.schema_version and self.schema_min_version:
            raise click.UsageError("--schema-version and --schema-min-version exclude each other")
        if (self.schema_version or self.schema_min_version) and not self.schema_subject:
            raise click.UsageError("--schema-version and --schema-min-version need --schema-subject")

    async def payloads(self) -> AsyncIterator[bytes]:
        """What to send, one after the other, at the asked pace."""
        if self.from_stdin:
            async for line in _lines_of_stdin():
                yield line
                if self.interval is not None:
                    await asyncio.sleep(self.interval / 1000)
            return
        payload = _read(self.file) if self.file is not None else (self.message or "").encode()
        total = self.count or 1
        for number in range(1, total + 1):
            yield payload
            if number < total:
                await asyncio.sleep((500 if self.interval is None else self.interval) / 1000)


async def _produce(work: _Work) -> None:
    schema = await _register(work) if work.schema_file is not None else None
    async with _opened(work, schema) as send:
        _say(work, f"Producer {work.name} created on {work.topic}", fg="green")
        try:
            await _send_all(work, send)
        finally:
            _summarise(work)


Send = Callable[[bytes], Awaitable[dict[str, int | None]]]
"""Publishes a payload and tells what it is known by: its offset, or the number of its call."""


async def _register(work: _Work) -> "SchemaRef":
    """Register --schema-file, and mean exactly the version it became."""
    from pydanube.client.schema_records import SchemaRef  # noqa: PLC0415

    assert work.schema_file is not None, "that is why it is called"
    assert work.schema_type is not None, "checked with the options"
    _say(work, f"Auto-registering schema {work.own_subject} from {work.schema_file}", fg="green")
    client = open_client(work.service_addr)
    try:
        made = await client.schemas.register(
            work.own_subject, _read(work.schema_file), work.schema_type, created_by="danube-client"
        )
    finally:
        await client.close()
    _say(work, f"Schema registered with ID {made.schema_id}, version {made.version}", fg="green")
    return SchemaRef(work.own_subject, version=made.version)


def _reference(work: _Work) -> "SchemaRef | None":
    from pydanube.client.schema_records import SchemaRef  # noqa: PLC0415

    if work.schema_subject is None:
        return None
    return SchemaRef(work.schema_subject, version=work.schema_version, at_least=work.schema_min_version)


def _opened(work: _Work, schema: "SchemaRef | None") -> AbstractAsyncContextManager[Send]:
    schema = schema or _reference(work)
    return _native(work, schema) if work.protocol == "native" else _grpc(work, schema)


@asynccontextmanager
async def _native(work: _Work, schema: "SchemaRef | None") -> AsyncIterator[Send]:
    async with open_client(work.service_addr) as client:
        opening = client.producer(
            work.topic,
            name=work.name,
            partitions=work.partitions,
            reliable=work.reliable,
            # Sequences belong to a name: those who share the default one would take it from each other.
            idempotent=work.reliable and work.producer_name is not None,
            schema=schema,
        )
        async with opening as producer:

            async def send(payload: bytes) -> dict[str, int | None]:
                receipt = await producer.send(payload, attributes=work.attributes, key=work.key)
                return {"offset": receipt.offset}

            yield send


@asynccontextmanager
async def _grpc(work: _Work, schema: "SchemaRef | None") -> AsyncIterator[Send]:
    from pydanube.client.grpc import Producer  # noqa: PLC0415
    from pydanube.protocol import danube_pb2 as pb  # noqa: PLC0415

    schema_ref = schema_id = version = None
    if schema is not None:
        schema_id, version = await _resolve(work, schema)
        schema_ref = pb.SchemaReference(
            subject=schema.subject,
            pinned_version=schema.version,
            min_version=schema.at_least,
            use_latest=None if schema.version or schema.at_least else True,
        )
    async with open_grpc_client(work.service_addr) as client:
        opening = Producer(
            client,
            work.topic,
            name=work.name,
            partitions=work.partitions or 0,
            reliable=work.reliable,
            schema_ref=schema_ref,
        )
        async with opening as producer:

            async def send(payload: bytes) -> dict[str, int | None]:
                sent = producer.send(
                    payload,
                    attributes=work.attributes,
                    routing_key=work.key,
                    schema_id=schema_id,
                    schema_version=version,
                )
                return {"id": await sent}

            yield send


async def _resolve(work: _Work, schema: "SchemaRef") -> tuple[int, int]:
    """The id and version that messages name."""
    client = open_client(work.service_addr)
    try:
        return await client.schemas.resolve(schema)
    finally:
        await client.close()


async def _send_all(work: _Work, send: Send) -> None:
    with _progress(work) as advance:
        async for payload in work.payloads():
            number = work.sent + work.failed + 1
            place = f"{number}/{work.count or 1}" if not work.from_stdin else str(number)
            try:
                known_by = await send(payload)
            except DanubeError as error:
                work.failed += 1
                if work.output != "text":
                    show_record({"message": number, "status": "error", "error": error.text}, work.output)
                else:
                    click.secho(f"{place} failed: {error.text}", fg="red", err=True)
                continue
            work.sent += 1
            if work.output != "text":
                record = {"message": number, "status": "ok", **known_by, "size": len(payload)}
                show_record(record, work.output)
            elif not advance():
                told = "".join(f", {name} {value}" for name, value in known_by.items() if value is not None)
                click.echo(f"{place} sent{told}")


@contextmanager
def _progress(work: _Work) -> Iterator[Callable[[], bool]]:
    """A function to call after each message: True if a bar shows it, False if a line is wanted."""
    if work.output != "text" or (work.count or 1) < _BAR_FROM or not sys.stdout.isatty():
        yield lambda: False
        return
    # Here, because rich takes longer to load than most commands to run.
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("Sending"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as bar:
        task = bar.add_task("send", total=work.count)

        def advance() -> bool:
            bar.advance(task)
            return True

        yield advance


def _summarise(work: _Work) -> None:
    if work.output != "text":
        show_record({"success": work.sent, "errors": work.failed}, work.output)
        return
    _say(work, f"Success: {work.sent}", fg="green")
    if work.failed:
        _say(work, f"Errors: {work.failed}", fg="red")


def _say(work: _Work, text: str, *, fg: str) -> None:
    if work.output == "text":
        click.secho(text, fg=fg)


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise click.FileError(path, error.strerror) from error


async def _lines_of_stdin() -> AsyncIterator[bytes]:
    """Lines as they come, without their ends; read in a thread, because stdin may be a file or a terminal."""
    stdin = sys.stdin.buffer
    while line := await asyncio.to_thread(stdin.readline, LINE_BYTES_MAX):
        yield line.rstrip(b"\r\n")
