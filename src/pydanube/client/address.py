"""Where a broker listens, from the ways people write it."""

from dataclasses import dataclass
from typing import Final

from pydanube.kernel.errors import Rejected

PORT: Final = 6650
_PLAIN: Final = ("danube", "http", "tcp")
_TLS: Final = ("danubes", "https")


@dataclass(frozen=True, slots=True)
class Address:
    """A broker's host and port, and whether TLS is spoken there."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'danubes' if self.tls else 'danube'}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Take danube://host:port, danubes://, http://, https:// or host:port; the port may be left out."""
        scheme, separator, rest = url.strip().partition("://")
        if not separator:
            scheme, rest = "danube", scheme
        host, port = _split(rest.rstrip("/"))
        if scheme not in _PLAIN + _TLS or not host or not port.isascii() or not port.isdigit():
            raise _invalid(url)
        number = int(port)
        if not 0 < number < 65_536 or any(c in host for c in "/@ ?#"):
            raise _invalid(url)
        return cls(host, number, scheme in _TLS)


def _split(target: str) -> tuple[str, str]:
    if target.startswith("["):
        host, bracket, port = target[1:].partition("]")
        return (host, port.removeprefix(":") or str(PORT)) if bracket else ("", "")
    host, _, port = target.partition(":")
    return host, port or str(PORT)


def _invalid(url: str) -> Rejected:
    return Rejected(
        f"invalid broker address {url!r}: expected danube://host:port (danubes:// for TLS), "
        f"e.g. danube://127.0.0.1:{PORT}"
    )
