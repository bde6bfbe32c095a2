"""What a command shows a broker to be let in: the same options, and variables, for every command that talks to one."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from pydanube.client import Client
    from pydanube.client.grpc import Client as GrpcClient

_META: Final = __name__
Command = Callable[..., Any]


class TokenText(click.ParamType[str]):
    """A token, or @FILE of one: arguments can be seen by everybody on the machine."""

    name = "token|@file"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if not text.startswith("@"):
            return text
        try:
            return Path(text[1:]).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            self.fail(f"no token can be read from {text[1:]}: {error}", param, ctx)


@dataclass(frozen=True, slots=True)
class Credentials:
    """None of them is needed where security is off."""

    token: str | None = field(default=None, repr=False)
    ca: Path | None = None
    cert: Path | None = None
    cert_key: Path | None = None

    @property
    def wants_tls(self) -> bool:
        """Files of TLS were given: an address that does not say so is meant so."""
        return self.ca is not None or self.cert is not None


def credential_options(*prefixes: str) -> Callable[[Command], Command]:
    """`--token`, `--ca`, `--cert` and `--cert-key`, or the variables PREFIX_TOKEN …; `given` has what they say."""

    def variables(*names: str) -> list[str]:
        return [f"{prefix}_{name}" for name in names for prefix in prefixes]

    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    options = (
        click.option(
            "--token",
            type=TokenText(),
            envvar=variables("TOKEN", "API_KEY") if "DANUBE_ADMIN" in prefixes else variables("TOKEN"),
            help=f"Who you are, or @FILE of it; also {prefixes[0]}_TOKEN.",
            **_KEPT,
        ),
        click.option(
            "--ca",
            "--tls-ca",
            "ca",
            type=file,
            envvar=variables("CA"),
            help=f"Authority to trust, PEM; also {prefixes[0]}_CA.",
            **_KEPT,
        ),
        click.option(
            "--cert",
            type=file,
            envvar=variables("CERT"),
            help=f"Certificate to show, PEM; also {prefixes[0]}_CERT.",
            **_KEPT,
        ),
        # Not --key: that is the routing key of messages.
        click.option(
            "--cert-key",
            type=file,
            envvar=variables("KEY"),
            help=f"The certificate's key, PEM; also {prefixes[0]}_KEY.",
            **_KEPT,
        ),
    )

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def given(ctx: click.Context | None = None) -> Credentials:
    """The credentials of the command that is running."""
    ctx = ctx or click.get_current_context()
    return Credentials(**ctx.meta.get(_META, {}))


def open_client(service_addr: str) -> "Client":
    """A native client with the credentials of the command that is running."""
    from pydanube.client import TLS, connect  # noqa: PLC0415 - slow to load

    shown = given()
    tls = TLS(ca=shown.ca, certificate=shown.cert, key=shown.cert_key) if shown.wants_tls else None
    return connect(service_addr, token=shown.token, tls=tls)


def open_grpc_client(service_addr: str) -> "GrpcClient":
    """The same over gRPC."""
    from pydanube.client.address import Address  # noqa: PLC0415
    from pydanube.client.grpc import Client  # noqa: PLC0415

    shown, address = given(), Address.parse(service_addr)
    host = f"[{address.host}]" if ":" in address.host else address.host
    scheme = "https" if address.tls or shown.wants_tls else "http"
    return Client(
        f"{scheme}://{host}:{address.port}",
        token=shown.token,
        ca_certificate=_read(shown.ca),
        certificate=_read(shown.cert),
        key=_read(shown.cert_key),
    )


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    assert param.name is not None
    if value is not None:
        ctx.meta.setdefault(_META, {})[param.name] = value
    return value


_KEPT: Final[dict[str, Any]] = {"expose_value": False, "callback": _keep}
"""The commands themselves need not know."""


def _read(file: Path | None) -> bytes | None:
    return None if file is None else file.read_bytes()
