"""Iceberg's own REST catalog server in a Java of its own, behind a door that wants to see a token and can fail."""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway  # type: ignore[import-untyped]

from pydanube.spark.java import find_java

PACKAGE: Final = "org.apache.iceberg:iceberg-open-api:1.10.1"
WAREHOUSE: Final = "lake"
CREDENTIAL: Final = "sync:secret"
TOKEN: Final = "let-me-in"
SECONDS_MAX: Final = 400
"""The jar has 200 MB, which have to be fetched once."""

_FIND: Final = """
import sys
from pydanube.spark.session import SparkSettings, resolved_jars
print(resolved_jars(SparkSettings(master="local[1]", packages=sys.argv[1:]))[0])
"""


def server_jar() -> Path:
    """As Spark finds packages, in a process of its own: that of the tests may have a session already."""
    found = subprocess.run(
        [sys.executable, "-c", _FIND, PACKAGE],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-4000:]
    return Path(found.stdout.splitlines()[-1])


class RestCatalogServer:
    """At the same address in all its lives; its tables are files in a folder."""

    def __init__(self, jar: Path, folder: Path) -> None:
        self._jar = jar
        self._folder = folder
        self._java: subprocess.Popen[bytes] | None = None
        self._door: _Door | None = None
        self._port = 0

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def token_uri(self) -> str:
        return f"{self.uri}/v1/oauth/tokens"

    def start(self) -> None:
        # Its own main class listens on all addresses of the machine; made piece by piece, it need not.
        (py4j,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
        with (self._folder / "catalog.log").open("ab") as log:
            port, self._java = launch_gateway(
                jarpath=str(py4j),
                classpath=str(self._jar),
                java_path=str(find_java().home / "bin" / "java"),
                redirect_stdout=log,
                redirect_stderr=log,
                die_on_exit=True,
                return_proc=True,
            )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
        try:
            behind = _serve(gateway.jvm, self._folder)
        finally:
            gateway.close()
        self._door = _Door(self._port, behind)
        self._port = self._door.server_port

    def kill(self) -> None:
        if self._door is not None:
            self._door.shut()
        java, self._door, self._java = self._java, None, None
        if java is not None:
            with java:
                java.kill()

    def lose_answer(self, table: str, after: int, status: int | None) -> None:
        """So many changes of a table are answered; the next one is made, and answered by nothing, or a status."""
        assert self._door is not None
        self._door.accident = Accident(f"/tables/{table}", after, status)

    @property
    def has_lost_answer(self) -> bool:
        assert self._door is not None
        return self._door.accident is None


def _serve(jvm: Any, folder: Path) -> int:
    """The port it listens on."""
    properties = {
        "catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        "uri": f"jdbc:sqlite:{folder / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        # Of two connections to SQLite, one that has read may keep the other from writing for ever.
        "clients": "1",
        "warehouse": (folder / "warehouse").as_uri(),
        "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
    }
    iceberg, jetty = jvm.org.apache.iceberg, jvm.org.eclipse.jetty
    catalog = iceberg.CatalogUtil.buildIcebergCatalog(
        "catalog", properties, jvm.org.apache.hadoop.conf.Configuration()
    )
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    handler = jetty.servlet.ServletContextHandler()
    handler.addServlet(jetty.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(handler)
    server.start()
    return int(server.getURI().getPort())


@dataclass
class Accident:
    path_end: str
    after: int
    status: int | None


class _Door(ThreadingHTTPServer):
    """Passes requests on; the server behind it lets everybody in, and knows one warehouse without a name."""

    daemon_threads = True

    def __init__(self, port: int, behind: int) -> None:
        super().__init__(("127.0.0.1", port), _Visitor)
        self.behind = behind
        self.accident: Accident | None = None
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def shut(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()

    def accident_of(self, path: str) -> Accident | None:
        accident = self.accident
        if accident is None or not path.endswith(accident.path_end):
            return None
        accident.after -= 1
        if accident.after >= 0:
            return None
        self.accident = None
        return accident


class _Visitor(BaseHTTPRequestHandler):
    server: _Door

    def _pass_on(self) -> None:
        address = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if address.path.endswith("/oauth/tokens"):
            self._give_token(parse_qs(body.decode()))
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "NotAuthorizedException", "this is not the token")
        elif parse_qs(address.query).get("warehouse", [WAREHOUSE]) != [WAREHOUSE]:
            self._refuse(404, "NotFoundException", "no such warehouse")
        else:
            status, kind, answer = self._ask_server(body)
            accident = self.server.accident_of(address.path) if self.command == "POST" else None
            if accident is None:
                self._answer(status, answer, kind)
            elif accident.status is not None:
                self._refuse(accident.status, "ServiceUnavailableException", "something is in the way")

    do_GET = do_HEAD = do_POST = do_DELETE = _pass_on  # noqa: N815 - names of the base class

    def _ask_server(self, body: bytes) -> tuple[int, str, bytes]:
        connection = HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            kinds = {"Content-Type": self.headers.get("Content-Type", "application/json")}
            connection.request(self.command, self.path, body, kinds)
            answer = connection.getresponse()
            return answer.status, answer.headers.get("Content-Type", "application/json"), answer.read()
        finally:
            connection.close()

    def _give_token(self, form: Mapping[str, list[str]]) -> None:
        if [*form.get("client_id", []), *form.get("client_secret", [])] != CREDENTIAL.split(":"):
            refusal = {"error": "invalid_client", "error_description": "nobody is called so"}
            self._answer(401, json.dumps(refusal).encode())
            return
        granted = {"access_token": TOKEN, "token_type": "bearer", "expires_in": 3600}
        self._answer(200, json.dumps(granted).encode())

    def _refuse(self, status: int, kind: str, words: str) -> None:
        refusal = {"error": {"message": words, "type": kind, "code": status}}
        self._answer(status, json.dumps(refusal).encode())

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        # Whoever was killed meanwhile takes no answer.
        with suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    def log_message(self, *words: Any) -> None:
        """Not at all."""
