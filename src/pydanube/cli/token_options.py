"""Keys and lifetimes of tokens as a command line says them."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.kernel.errors import Rejected
from pydanube.security.settings import Algorithm, JwtSettings, TokenKey

if TYPE_CHECKING:
    from pydanube.security.token_keys import SigningKey
    from pydanube.security.tokens import TokenVerifier

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_UNNAMED: Final = "key"


class Ttl(click.ParamType[int]):
    """`8h`, `30d`, or seconds."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = re.fullmatch(r"(\d{1,12})([smhd]?)", str(value))
        if match is None:
            self.fail(f"{value!r} is no length of time: expected 8h, 30d or seconds", param, ctx)
        return int(match[1]) * _UNITS[match[2]]


def token_key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--secret-key` or `--key-file`, and `--key-id`: as keywords of the command."""
    for option in (
        click.option("--key-id", metavar="ID", help="The key's id in auth.jwt.keys, if it has one."),
        click.option(
            "--key-file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="PEM of the key: the private one signs, the public one checks.",
        ),
        click.option(
            "--secret-key",
            envvar="DANUBE_JWT_SECRET_KEY",
            metavar="SECRET",
            help="The secret of HS256; better in DANUBE_JWT_SECRET_KEY, where others do not see it.",
        ),
    ):
        command = option(command)
    return command


def signing_key(secret_key: str | None, key_file: Path | None, key_id: str | None) -> "SigningKey":
    from pydanube.security.token_keys import private_signing_key, secret_signing_key  # noqa: PLC0415

    if key_file is not None:
        content = key_file.read_bytes()
        if b"-----BEGIN" in content:
            return private_signing_key(content, key_id)
        return secret_signing_key(content.removesuffix(b"\n"), key_id)
    return secret_signing_key(_required(secret_key).encode(), key_id)


def verifier(
    issuer: str | None,
    audience: str | None,
    *,
    secret_key: str | None,
    key_file: Path | None,
    key_id: str | None,
) -> "TokenVerifier":
    """Checks tokens as a broker with this one key would."""
    from pydanube.security.tokens import TokenVerifier  # noqa: PLC0415
    from pydanube.server.process import SystemClock  # noqa: PLC0415

    if key_file is not None:
        is_pem = b"-----BEGIN" in key_file.read_bytes()
        algorithms: tuple[Algorithm, ...] = ("Ed25519", "RS256") if is_pem else ("HS256",)
        found = [TokenKey(id=key_id or _UNNAMED, algorithm=each, file=str(key_file)) for each in algorithms]
    elif key_id is not None:
        found = [TokenKey(id=key_id, algorithm="HS256", secret=_required(secret_key))]
    else:
        settings = JwtSettings(secret_key=_required(secret_key), issuer=issuer, audience=audience)
        return TokenVerifier(settings, SystemClock())
    for key in found[:-1]:
        try:
            return TokenVerifier(JwtSettings(keys=(key,), issuer=issuer, audience=audience), SystemClock())
        except Rejected:
            pass  # a key of the other kind
    return TokenVerifier(JwtSettings(keys=(found[-1],), issuer=issuer, audience=audience), SystemClock())


def _required(secret_key: str | None) -> str:
    if not secret_key:
        raise click.UsageError("give --secret-key (or DANUBE_JWT_SECRET_KEY), or --key-file")
    return secret_key
