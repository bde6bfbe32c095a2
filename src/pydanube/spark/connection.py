"""Which cluster a Spark job talks to, in a form that travels to executors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydanube.client import blocking

DEFAULT_URL = "danube://127.0.0.1:6650"


@dataclass(frozen=True, slots=True)
class Connection:
    """The address of a broker, and what it takes to be let in; files must be there on every executor."""

    url: str = DEFAULT_URL
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @classmethod
    def of_options(cls, options: Mapping[str, str]) -> "Connection":
        """From the options of a data source, whose names may come in any case."""
        given = {name.lower(): value for name, value in options.items()}
        return cls(
            given.get("url", DEFAULT_URL),
            given.get("token"),
            given.get("cafile"),
            given.get("certfile"),
            given.get("keyfile"),
        )

    def options(self) -> dict[str, str]:
        """The same as options of the data source."""
        options = {
            "url": self.url,
            "token": self.token,
            "caFile": self.ca_file,
            "certFile": self.cert_file,
            "keyFile": self.key_file,
        }
        return {name: value for name, value in options.items() if value is not None}

    def client(self, *, timeout: float = 30.0) -> "blocking.Client":
        """A client, to be used with `with`."""
        # A task that reads files only needs none, and starts a third sooner without.
        from pydanube.client import blocking  # noqa: PLC0415
        from pydanube.client.tls import TLS  # noqa: PLC0415

        tls = None
        if self.ca_file or self.cert_file:
            tls = TLS(ca=self.ca_file, certificate=self.cert_file, key=self.key_file)
        return blocking.connect(self.url, token=self.token, tls=tls, timeout=timeout)
