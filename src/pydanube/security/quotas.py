"""How much one principal may ask of a broker. Pure: the time is an argument."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from pydanube.kernel.errors import ErrorCode, Unavailable
from pydanube.security.principals import Principal
from pydanube.security.settings import Limits

TRACKED_MAX: Final = 10_000
"""Principals remembered; those silent for longest, without connections, are forgotten."""


class TokenBucket:
    """Fills at a rate up to one second's worth. Whoever finds something in it may take all they need, on credit."""

    __slots__ = ("_at_ms", "_level", "_rate")

    def __init__(self, per_second: int, now_ms: int) -> None:
        # In thousandths, so that a millisecond adds a whole number: sums of fractions fall short of what was promised.
        self._rate = per_second
        self._level = per_second * 1000
        self._at_ms = now_ms

    def take(self, amount: int, now_ms: int) -> int:
        """Take it and return 0; or take nothing and return after how many milliseconds to come again."""
        if now_ms > self._at_ms:
            self._level = min(self._level + (now_ms - self._at_ms) * self._rate, self._rate * 1000)
            self._at_ms = now_ms
        if self._level <= 0:
            return -self._level // self._rate + 1
        # On credit, so that a message larger than a second's worth is possible; the debt delays the next.
        self._level -= amount * 1000
        return 0


class _Account:
    """What is known of one principal."""

    __slots__ = ("bytes", "connections", "limits", "requests")

    def __init__(self, limits: Limits, now_ms: int) -> None:
        self.limits = limits
        self.connections = 0
        self.requests = _bucket(limits.requests_per_second, now_ms)
        self.bytes = _bucket(limits.publish_bytes_per_second, now_ms)


class Quotas:
    """Connections, requests and published bytes of each principal on this broker."""

    def __init__(
        self,
        limits: Limits,
        by_name: Mapping[str, Limits] | None = None,
        *,
        tracked_max: int = TRACKED_MAX,
    ) -> None:
        self._limits = limits
        self._by_name = by_name or {}
        self._tracked_max = tracked_max
        self._accounts: OrderedDict[Principal, _Account] = OrderedDict()

    def __len__(self) -> int:
        return len(self._accounts)

    def connect(self, principal: Principal, now_ms: int) -> None:
        """Count a connection, or refuse it; a counted one must be given back with `disconnect`."""
        account = self._account(principal, now_ms)
        limit = account.limits.connections_max
        if limit and account.connections >= limit:
            raise Unavailable(
                f"{principal} has {limit} connections, as many as it may: close some",
                ErrorCode.CONNECTIONS_EXHAUSTED,
            )
        account.connections += 1

    def disconnect(self, principal: Principal) -> None:
        account = self._accounts.get(principal)
        if account is not None and account.connections > 0:
            account.connections -= 1

    def request(self, principal: Principal, now_ms: int) -> None:
        """Count a request, or refuse it."""
        wait_ms = self.request_wait_ms(principal, now_ms)
        if wait_ms:
            raise Unavailable(
                f"{principal} sends more requests than it may: try again in {wait_ms} ms",
                ErrorCode.RATE_EXCEEDED,
            )

    def request_wait_ms(self, principal: Principal, now_ms: int) -> int:
        """Count a request and return 0; or count nothing and say how long to wait before asking again."""
        bucket = self._account(principal, now_ms).requests
        return 0 if bucket is None else bucket.take(1, now_ms)

    def publish_wait_ms(self, principal: Principal, size: int, now_ms: int) -> int:
        """Count published bytes and return 0; or count nothing and say how long to wait before asking again."""
        bucket = self._account(principal, now_ms).bytes
        return 0 if bucket is None else bucket.take(size, now_ms)

    def _account(self, principal: Principal, now_ms: int) -> _Account:
        account = self._accounts.get(principal)
        if account is not None:
            self._accounts.move_to_end(principal)
            return account
        if len(self._accounts) >= self._tracked_max:
            self._forget_one()
        account = _Account(self._by_name.get(principal.name, self._limits), now_ms)
        self._accounts[principal] = account
        return account

    def _forget_one(self) -> None:
        """Forget who has been silent for longest; whoever is connected is not forgotten, or could connect anew."""
        for principal, account in self._accounts.items():
            if account.connections == 0:
                del self._accounts[principal]
                return
        raise Unavailable(
            f"{self._tracked_max} principals are connected, as many as can be told apart: try again later",
            ErrorCode.CONNECTIONS_EXHAUSTED,
        )


def _bucket(per_second: int, now_ms: int) -> TokenBucket | None:
    return TokenBucket(per_second, now_ms) if per_second else None
