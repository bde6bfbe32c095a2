"""How to trust a broker, and to be trusted by it."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike

from pydanube.kernel.errors import Rejected
from pydanube.protocol.native.frames import ALPN

Token = str | Callable[[], str]
"""Presented to every broker; a function is asked for a fresh one whenever a broker has to be told."""


def current(token: Token | None) -> str | None:
    return token() if callable(token) else token


@dataclass(frozen=True, slots=True, kw_only=True)
class TLS:
    """Files in PEM form: the authority that signed the broker's certificate, and our own certificate if it wants one.

    Without `ca`, the authorities of the operating system count.
    """

    ca: str | PathLike[str] | None = None
    certificate: str | PathLike[str] | None = None
    key: str | PathLike[str] | None = None

    def context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise Rejected(f"{self}: these files cannot be used: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols([ALPN])
        return context
