"""Bind addresses and the URLs handed to clients."""

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.server.listeners import Address, AddressFlags, Listeners, resolve_listeners


def resolve(
    *, host: str = "127.0.0.1", advertised: tuple[str, str] | None = None, tls: bool = False, **flags: str
) -> Listeners:
    return resolve_listeners(
        host=host,
        client_port=6650,
        admin_port=50051,
        prometheus_port=9040,
        advertised=advertised,
        tls=tls,
        flags=AddressFlags(**flags),
    )


def urls(listeners: Listeners) -> tuple[str, str, bool]:
    return listeners.broker_url, listeners.connect_url, listeners.proxy


def test_the_bind_address_is_advertised_by_default() -> None:
    assert urls(resolve()) == ("http://127.0.0.1:6650", "http://127.0.0.1:6650", False)
    assert resolve(tls=True).connect_url == "https://127.0.0.1:6650"


def test_ipv6_gets_brackets() -> None:
    listeners = resolve(host="::1")
    assert str(listeners.client) == "[::1]:6650"
    assert listeners.connect_url == "http://[::1]:6650"
    assert resolve(broker_addr="[::1]:7000").client == Address("::1", 7000)


def test_advertised_listeners_make_a_proxy_when_they_differ() -> None:
    same = resolve(advertised=("broker:6650", "broker:6650"))
    assert urls(same) == ("http://broker:6650", "http://broker:6650", False)
    proxied = resolve(advertised=("broker-0:6650", "https://proxy.example:443/"))
    assert urls(proxied) == ("http://broker-0:6650", "https://proxy.example:443", True)


def test_broker_addr_beats_advertised_listeners_unless_there_is_a_proxy() -> None:
    plain = resolve(advertised=("b:1", "b:1"), broker_addr="127.0.0.1:7000")
    assert urls(plain) == ("http://127.0.0.1:7000", "http://127.0.0.1:7000", False)
    proxied = resolve(advertised=("b:1", "p:2"), broker_addr="127.0.0.1:7000")
    assert urls(proxied) == ("http://b:1", "http://p:2", True)
    assert str(proxied.client) == "127.0.0.1:7000"


def test_advertised_addr_sets_both_and_connect_url_one() -> None:
    assert urls(resolve(advertised=("b:1", "p:2"), advertised_addr="a:3")) == (
        "http://a:3",
        "http://a:3",
        False,
    )
    assert urls(resolve(advertised_addr="a:3", connect_url="p:4")) == ("http://a:3", "http://p:4", True)
    assert urls(resolve(connect_url="http://127.0.0.1:6650")) == (
        "http://127.0.0.1:6650",
        "http://127.0.0.1:6650",
        False,
    )


def test_flags_move_each_listener_alone() -> None:
    listeners = resolve(admin_addr="127.0.0.2:1", prom_exporter="127.0.0.3:2")
    assert str(listeners.client) == "127.0.0.1:6650"
    assert str(listeners.admin) == "127.0.0.2:1"
    assert str(listeners.prometheus) == "127.0.0.3:2"
    assert resolve(prom_exporter="off").prometheus is None


@pytest.mark.parametrize(
    "text", ["", "6650", "localhost:6650", "127.0.0.1", "127.0.0.1:x", "::1:6650", "1.2.3.4:70000"]
)
def test_an_address_to_bind_must_be_ip_and_port(text: str) -> None:
    with pytest.raises(Rejected, match="--broker-addr"):
        resolve(broker_addr=text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        "ftp://host:1",
        "http://host:1/path",
        "http://u:p@host:1",
        "::1:80",
        "h:x",
        "a b:1",
    ],
)
def test_what_clients_cannot_dial_is_not_advertised(text: str) -> None:
    with pytest.raises(Rejected, match="--advertised-addr"):
        resolve(advertised_addr=text)
