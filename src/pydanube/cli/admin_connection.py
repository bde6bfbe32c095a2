"""The way to a broker's admin port, and the options of every command that takes it.

How these commands end: 0 all is well; 1 refused, failed or damaged; 2 wrong options; 3 the broker or its store could
not be reached, so nothing is known; 130 Ctrl-C.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pydanube.cli.failures import INTERRUPTED
from pydanube.client.address import Address
from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, Rejected, Status, Unavailable

if TYPE_CHECKING:
    import grpc.aio
    from google.protobuf.message import Message

    from pydanube.protocol import storage_admin_pb2 as pb

ADMIN_PORT: Final = 50051
PART_BYTES: Final = 1 << 20
"""Of a segment in one call: the most the broker takes and gives."""
PARTS_IN_FLIGHT_MAX: Final = 4
CALL_SECONDS_MAX: Final = 30.0
LONG_CALL_SECONDS_MAX: Final = 3600.0
"""For calls that move a whole topic: sealing one, finishing an import."""

_CODE: Final = re.compile(r"\(code (\d+)\)$")
_CODES: Final = {code.number: code for code in ErrorCode}

Result = TypeVar("Result")
Command = TypeVar("Command", bound=Callable[..., Any])
Response = TypeVar("Response", bound="Message")


class AdminAddress(click.ParamType[Address]):
    """`host:port` of an admin port; https:// in front for TLS."""

    name = "host:port"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Address:
        if isinstance(value, Address):
            return value
        text = str(value).rstrip("/")
        try:
            return Address.parse(text if re.search(r":\d+$", text) else f"{text}:{ADMIN_PORT}")
        except Rejected:
            self.fail(
                f"{value!r} is no address: expected host:port such as 127.0.0.1:{ADMIN_PORT}, "
                "with https:// in front for TLS",
                param,
                ctx,
            )


def admin_options(command: Command) -> Command:
    """`--admin-addr` and `--ca`."""
    command = click.option(
        "--ca",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Certificate to trust, as PEM, for an https:// address.",
    )(command)
    return click.option(
        "--admin-addr",
        type=AdminAddress(),
        envvar="DANUBE_ADMIN_ADDR",
        show_envvar=True,
        default=f"127.0.0.1:{ADMIN_PORT}",
        show_default=True,
        help="Admin port of the broker.",
    )(command)


class NotReachable(click.ClickException):
    """Nothing is wrong with what was asked for, as far as is known: try again later."""

    exit_code = 3


def run_admin(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a command's coroutine; an error becomes a sentence and an exit status."""
    try:
        return asyncio.run(work)
    except Unavailable as error:
        raise NotReachable(error.text) from error
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    except KeyboardInterrupt:
        click.secho("Stopped", fg="yellow", err=True)
        raise SystemExit(INTERRUPTED) from None


@asynccontextmanager
async def connect_admin(address: Address, ca: Path | None) -> AsyncIterator["AdminConnection"]:
    """A connection to an admin port; nothing is dialled before the first call."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    target = f"{host}:{address.port}"
    async with _channel(target, address.tls, ca) as channel:
        yield AdminConnection(channel, target)


def _channel(target: str, tls: bool, ca: Path | None) -> "grpc.aio.Channel":
    import grpc.aio  # noqa: PLC0415 - slow to load

    # Proxies of the environment are for the web, not for brokers.
    options = [("grpc.enable_http_proxy", 0)]
    if not tls:
        return grpc.aio.insecure_channel(target, options=options)
    credentials = grpc.ssl_channel_credentials(None if ca is None else ca.read_bytes())
    return grpc.aio.secure_channel(target, credentials, options=options)


class AdminConnection:
    """The calls of pydanube.storage.v1.StorageAdmin. Made by `connect_admin`."""

    def __init__(self, channel: "grpc.aio.Channel", target: str) -> None:
        from pydanube.protocol import storage_admin_pb2  # noqa: PLC0415 - protobuf is slow to load

        self._channel = channel
        self._target = target
        self._pb = storage_admin_pb2

    async def seal(self, topic: str) -> "pb.SealResponse":
        request = self._pb.SealRequest(topic=topic)
        return await self._call("Seal", request, self._pb.SealResponse, LONG_CALL_SECONDS_MAX)

    async def describe(self, topic: str) -> "pb.DescribeStorageResponse":
        request = self._pb.DescribeStorageRequest(topic=topic)
        return await self._call("DescribeStorage", request, self._pb.DescribeStorageResponse)

    async def segments(self, topic: str, from_offset: int = 0) -> "list[pb.Segment]":
        """All segments that hold this offset or later ones, oldest first."""
        found: list[pb.Segment] = []
        while True:
            request = self._pb.ListSegmentsRequest(topic=topic, from_offset=from_offset)
            answer = await self._call("ListSegments", request, self._pb.ListSegmentsResponse)
            found += answer.segments
            if not answer.has_more or not answer.segments:
                return found
            from_offset = found[-1].end_offset + 1

    async def download(
        self, topic: str, segment_id: str, size: int, file: Path, done: Callable[[int], None]
    ) -> None:
        """Copy a segment into a file; `done` is told the bytes of each step."""
        with file.open("xb") as target:
            step = PART_BYTES * PARTS_IN_FLIGHT_MAX
            for start in range(0, size, step):
                positions = range(start, min(start + step, size), PART_BYTES)
                reads = (
                    self._read(topic, segment_id, position, min(PART_BYTES, size - position))
                    for position in positions
                )
                for data in await asyncio.gather(*reads):
                    target.write(data)
                    done(len(data))

    async def begin_import(self, topic: str) -> int:
        """The id the topic will have, which names the import."""
        request = self._pb.BeginImportRequest(topic=topic)
        answer = await self._call("BeginImport", request, self._pb.BeginImportResponse)
        return answer.topic_id

    async def upload(self, topic_id: int, file_number: int, file: Path, done: Callable[[int], None]) -> None:
        """Send a whole segment file, part by part: each must lie behind the one before."""
        position = 0
        with file.open("rb") as source:
            while data := source.read(PART_BYTES):
                request = self._pb.ImportPartRequest(
                    topic_id=topic_id, file_number=file_number, position=position, data=data
                )
                await self._call("ImportPart", request, self._pb.ImportPartResponse)
                position += len(data)
                done(len(data))

    async def finish_import(self, topic_id: int) -> "pb.FinishImportResponse":
        request = self._pb.FinishImportRequest(topic_id=topic_id)
        return await self._call("FinishImport", request, self._pb.FinishImportResponse, LONG_CALL_SECONDS_MAX)

    async def abandon_import(self, topic_id: int) -> None:
        request = self._pb.AbandonImportRequest(topic_id=topic_id)
        await self._call("AbandonImport", request, self._pb.AbandonImportResponse)

    async def _read(self, topic: str, segment_id: str, position: int, size: int) -> bytes:
        request = self._pb.ReadSegmentRequest(
            topic=topic, segment_id=segment_id, position=position, size=size
        )
        answer = await self._call("ReadSegment", request, self._pb.ReadSegmentResponse)
        if len(answer.data) != size:
            raise Corrupt(
                f"segment {segment_id} ends at byte {position + len(answer.data)}, before its {size} bytes from "
                f"{position} on: restore it from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            )
        return answer.data

    async def _call(
        self, method: str, request: "Message", response: type[Response], seconds: float = CALL_SECONDS_MAX
    ) -> Response:
        import grpc.aio  # noqa: PLC0415

        invoke: Any = self._channel.unary_unary(
            f"/pydanube.storage.v1.StorageAdmin/{method}",
            request_serializer=_serialize,
            response_deserializer=response.FromString,
        )
        try:
            answer: Response = await invoke(request, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            status = Status(error.code().value[0])
            raise self._failure(method, status, error.details() or "no details", seconds) from error
        return answer

    def _failure(self, method: str, status: Status, text: str, seconds: float) -> DanubeError:
        code = _CODE.search(text)
        if code is not None:
            known = _CODES.get(int(code[1]))
            if status is Status.DATA_LOSS:
                return Corrupt(text, known)
            # What another try may mend is told apart from what it cannot.
            can_pass = status is Status.UNAVAILABLE or known is ErrorCode.STORAGE_FAILED
            return Unavailable(text, known) if can_pass else DanubeError(text, known)
        match status:
            case Status.UNAVAILABLE:
                return Unavailable(
                    f"no broker answers on {self._target}: start one by `danube broker`, or say where its admin port "
                    f"is by --admin-addr or DANUBE_ADMIN_ADDR ({text})"
                )
            case Status.DEADLINE_EXCEEDED:
                return Unavailable(
                    f"the broker on {self._target} did not answer {method} within {seconds:g} s: look into its log"
                )
            case Status.UNIMPLEMENTED:
                return Rejected(
                    f"{self._target} does not know {method}: is that the admin port (default {ADMIN_PORT}) of a broker "
                    "of this version?"
                )
            case _:
                return DanubeError(f"{method} failed with {status.name}: {text}")


def _serialize(message: "Message") -> bytes:
    return message.SerializeToString()
