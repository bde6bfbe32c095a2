"""The way to a broker's admin port, and the options of every command that takes it.

How these commands end: 0 all is well; 1 refused, failed or damaged; 2 wrong options; 3 the broker or its store could
not be reached, so nothing is known; 130 Ctrl-C.
"""

import asyncio
import functools
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pydanube.cli.credentials import Credentials, credential_options, given
from pydanube.cli.failures import INTERRUPTED
from pydanube.cli.tables import output_option
from pydanube.client.address import Address
from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, Rejected, Status, Unavailable

if TYPE_CHECKING:
    import grpc.aio
    from google.protobuf.message import Message

ADMIN_PORT: Final = 50051
CALL_SECONDS_MAX: Final = 30.0

_CODE: Final = re.compile(r"\(code (\d+)\)$")
_CODES: Final = {code.number: code for code in ErrorCode}

Result = TypeVar("Result")
Response = TypeVar("Response", bound="Message")
Command = Callable[..., Any]


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


@dataclass(frozen=True, slots=True)
class AdminPort:
    """Where an admin port is, and what it takes to be let in."""

    address: Address
    credentials: Credentials = field(default_factory=Credentials)
    domain: str | None = None
    """The name to look for in the broker's certificate, if it is not that of the address."""

    @property
    def target(self) -> str:
        host = f"[{self.address.host}]" if ":" in self.address.host else self.address.host
        return f"{host}:{self.address.port}"

    @asynccontextmanager
    async def connect(self) -> "AsyncIterator[AdminConnection]":
        """Nothing is dialled before the first call."""
        async with self._channel() as channel:
            yield AdminConnection(channel, self.target, self.credentials.token)

    def _channel(self) -> "grpc.aio.Channel":
        import grpc.aio  # noqa: PLC0415 - slow to load

        # Proxies of the environment are for the web, not for brokers.
        options: list[tuple[str, int | str]] = [("grpc.enable_http_proxy", 0)]
        if not self.address.tls and not self.credentials.wants_tls:
            return grpc.aio.insecure_channel(self.target, options=options)
        if self.domain is not None:
            options.append(("grpc.ssl_target_name_override", self.domain))
        files = (self.credentials.ca, self.credentials.cert_key, self.credentials.cert)
        credentials = grpc.ssl_channel_credentials(
            *(None if file is None else file.read_bytes() for file in files)
        )
        return grpc.aio.secure_channel(self.target, credentials, options=options)


def admin_options(command: Command) -> Command:
    """`--admin-addr` and the options of credentials: the command gets them as `admin_port`."""

    @click.option(
        "--admin-addr",
        type=AdminAddress(),
        envvar=["DANUBE_ADMIN_ADDR", "DANUBE_ADMIN_ENDPOINT"],
        show_envvar=True,
        default=f"127.0.0.1:{ADMIN_PORT}",
        show_default=True,
        help="Admin port of the broker.",
    )
    @credential_options("DANUBE_ADMIN", "DANUBE")
    @functools.wraps(command)
    def with_port(*, admin_addr: Address, **options: Any) -> Any:
        return command(admin_port=admin_port_at(admin_addr), **options)

    return with_port


def admin_port_at(address: Address, ctx: click.Context | None = None) -> AdminPort:
    """The admin port there, with the credentials of the command that is running."""
    if os.environ.get("DANUBE_ADMIN_TLS", "").lower() in ("1", "true", "yes"):
        address = Address(address.host, address.port, tls=True)
    return AdminPort(address, given(ctx), os.environ.get("DANUBE_ADMIN_DOMAIN") or None)


def administrative(work: Callable[..., Coroutine[Any, Any, None]]) -> Command:
    """Make a command of a coroutine that takes an `AdminConnection`, its own options, and `output`."""

    @admin_options
    @output_option
    @functools.wraps(work)
    def command(*, admin_port: AdminPort, **options: Any) -> None:
        async def connected() -> None:
            async with admin_port.connect() as admin:
                await work(admin, **options)

        run_admin(connected())

    return command


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


class AdminConnection:
    """Calls the services of an admin port. Made by `AdminPort.connect`."""

    def __init__(self, channel: "grpc.aio.Channel", target: str, token: str | None = None) -> None:
        self._channel = channel
        self._target = target
        self._metadata = None if token is None else [("authorization", f"Bearer {token}")]

    async def call(
        self, method: str, request: "Message", response: type[Response], seconds: float = CALL_SECONDS_MAX
    ) -> Response:
        """One request, one response; `method` is package.Service/Method.

        Raises:
            Unavailable: the broker, or what it needs, cannot be reached.
            Corrupt: stored bytes are not what was written.
            DanubeError: the broker refuses; `METHOD_UNKNOWN` is the code if it never heard of the method.
        """
        import grpc.aio  # noqa: PLC0415

        invoke: Any = self._channel.unary_unary(
            f"/{method}", request_serializer=_serialize, response_deserializer=response.FromString
        )
        try:
            answer: Response = await invoke(request, metadata=self._metadata, timeout=seconds)
        except grpc.aio.AioRpcError as error:
            status = Status(error.code().value[0])
            name = method.rpartition("/")[2]
            raise self._failure(name, status, error.details() or "no details", seconds) from error
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
            case Status.UNAUTHENTICATED:
                return Rejected(
                    f"{self._target} does not let you in: {text}; give --token or DANUBE_ADMIN_TOKEN",
                    ErrorCode.CREDENTIALS_MISSING,
                )
            case Status.UNIMPLEMENTED if text.startswith("unknown method") or text == "no details":
                return Rejected(
                    f"{self._target} does not know {method}: is that the admin port (default {ADMIN_PORT}) of a broker "
                    "of this version?",
                    ErrorCode.METHOD_UNKNOWN,
                )
            case _:
                return DanubeError(f"{method} failed with {status.name}: {text}", _OF_STATUS.get(status))


_OF_STATUS: Final = {
    Status.NOT_FOUND: ErrorCode.TOPIC_UNKNOWN,
    Status.INVALID_ARGUMENT: ErrorCode.ARGUMENT_INVALID,
    Status.PERMISSION_DENIED: ErrorCode.PERMISSION_DENIED,
}
"""Codes of answers that carry only a status."""


def _serialize(message: "Message") -> bytes:
    return message.SerializeToString()
