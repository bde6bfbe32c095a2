"""Where the broker listens and what it tells clients to dial."""

from dataclasses import dataclass, replace
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

from pydanube.kernel.errors import Rejected


@dataclass(frozen=True, slots=True)
class Address:
    """An IP literal and a port; `str()` gives `host:port`, with brackets around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def is_wildcard(self) -> bool:
        return ip_address(self.host).is_unspecified

    @classmethod
    def parse(cls, text: str, *, what: str) -> "Address":
        """Read `ip:port` or `[ipv6]:port`."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = check_ip(host[1:-1], what=what)
            bare_ipv6 = False
        else:
            bare_ipv6 = ":" in host
        if not colon or bare_ipv6 or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise Rejected(
                f"{what}: {text!r} is not an address: expected ip:port such as 127.0.0.1:6650 or [::1]:6650"
            )
        return cls(check_ip(host, what=what), int(port))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Bind addresses, and the two URLs handed to clients.

    `broker_url` names the broker inside the cluster, `connect_url` is dialled; where they differ,
    clients reach it through a proxy and are told so.
    """

    client: Address
    admin: Address
    prometheus: Address | None
    broker_url: str
    connect_url: str

    @property
    def proxy(self) -> bool:
        return self.broker_url != self.connect_url

    def bound_to(self, port: int) -> "Listeners":
        """The same, with the port the system chose where 0 was asked for."""
        asked, bound = str(self.client), Address(self.client.host, port)
        return replace(
            self,
            client=bound,
            broker_url=self.broker_url.replace(f"//{asked}", f"//{bound}"),
            connect_url=self.connect_url.replace(f"//{asked}", f"//{bound}"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressFlags:
    """The command line's say; None where it was silent."""

    broker_addr: str | None = None
    admin_addr: str | None = None
    prom_exporter: str | None = None
    """An address, or `off`."""
    advertised_addr: str | None = None
    connect_url: str | None = None


def resolve_listeners(
    *,
    host: str,
    client_port: int,
    admin_port: int,
    prometheus_port: int | None,
    advertised: tuple[str, str] | None,
    tls: bool,
    flags: AddressFlags,
) -> Listeners:
    """Apply the precedence: bind address, `advertised_listeners`, then each flag in the order below."""
    host = check_ip(host, what="broker.host")
    client = Address(host, client_port)
    admin = Address(host, admin_port)
    prometheus = None if prometheus_port is None else Address(host, prometheus_port)
    if flags.broker_addr is not None:
        client = Address.parse(flags.broker_addr, what="--broker-addr")
    if flags.admin_addr is not None:
        admin = Address.parse(flags.admin_addr, what="--admin-addr")
    if flags.prom_exporter is not None:
        off = flags.prom_exporter == "off"
        prometheus = None if off else Address.parse(flags.prom_exporter, what="--prom-exporter")

    broker_url = connect_url = _url(str(client), tls=tls, what="the client address")
    if advertised is not None:
        urls = (
            _url(advertised[0], tls=tls, what="broker.advertised_listeners.broker_url"),
            _url(advertised[1], tls=tls, what="broker.advertised_listeners.connect_url"),
        )
        # --broker-addr beats advertised listeners, except behind a proxy, which stays where it is.
        if flags.broker_addr is None or urls[0] != urls[1]:
            broker_url, connect_url = urls
    if flags.advertised_addr is not None:
        broker_url = connect_url = _url(flags.advertised_addr, tls=tls, what="--advertised-addr")
    if flags.connect_url is not None:
        connect_url = _url(flags.connect_url, tls=tls, what="--connect-url")
    return Listeners(
        client=client, admin=admin, prometheus=prometheus, broker_url=broker_url, connect_url=connect_url
    )


def check_ip(host: str, *, what: str) -> str:
    """Accept an IP literal; names are refused because what they mean may change under a running broker."""
    try:
        address = ip_address(host)
    except ValueError as error:
        raise Rejected(
            f"{what}: {host!r} is not an IP address: names cannot be bound, use e.g. 127.0.0.1"
        ) from error
    if isinstance(address, IPv6Address) and address.scope_id is not None:
        raise Rejected(f"{what}: {host!r} has a zone: clients elsewhere cannot dial it")
    return str(address)


def _url(text: str, *, tls: bool, what: str) -> str:
    """Complete `host:port` to a URL clients can dial."""
    url = text.rstrip("/") if "://" in text else f"{'https' if tls else 'http'}://{text}"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port is not None
    except ValueError:  # a port that is no number, brackets that do not close
        usable = False
    if not usable or url != f"{parts.scheme}://{parts.netloc}" or "@" in parts.netloc or " " in url:
        raise Rejected(
            f"{what}: {text!r} is no address clients can dial: expected host:port or http(s)://host:port, "
            "IPv6 in brackets, nothing behind the port"
        )
    return url
