"""Profiles and roles of AWS: who signs the requests that leave this machine."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from pydanube.kernel.errors import Rejected, Unavailable
from pydanube.stores.settings import open_store
from tests.contract.stores.conftest import s3_settings

ROLE = "arn:aws:iam::123456789012:role/history"

ASSUMED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>role-secret</SecretAccessKey>
<SessionToken>role-token</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleResult></AssumeRoleResponse>"""
DENIED = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>not allowed</Message></Error></ErrorResponse>"""


class Server(ThreadingHTTPServer):
    """Takes every object, and gives a role to everybody or nobody."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.gives_roles = True
        self.asked: list[tuple[str, dict[str, str], bytes]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_PUT(self) -> None:
        self._answer(200, "")

    def do_POST(self) -> None:
        self._answer(*((200, ASSUMED) if self.server.gives_roles else (403, DENIED)))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        return None

    def _answer(self, status: int, text: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.asked.append((self.command, headers, body))
        self.send_response(status)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "credentials").write_text(
        "[archive]\naws_access_key_id = PROFILEKEY\naws_secret_access_key = profile-secret\n[empty]\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with Server() as running:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", running.endpoint)
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


NO_KEYS = {"access_key": None, "secret_key": None}


async def test_a_profile_signs(server: Server) -> None:
    store = open_store(s3_settings(server.endpoint, profile="archive", **NO_KEYS))
    await store.put_bytes("a", b"1")
    ((method, headers, _),) = server.asked
    assert method == "PUT"
    assert "Credential=PROFILEKEY/" in headers["authorization"]


async def test_a_role_signs_for_the_profile_that_takes_it(server: Server) -> None:
    store = open_store(s3_settings(server.endpoint, profile="archive", role_arn=ROLE, **NO_KEYS))
    await store.put_bytes("a", b"1")
    await store.put_bytes("b", b"2")
    (_, to_sts, question), (_, first, _), (_, second, _) = server.asked
    assert "Credential=PROFILEKEY/" in to_sts["authorization"]
    assert b"Action=AssumeRole" in question
    assert b"role%2Fhistory" in question
    for headers in (first, second):
        assert "Credential=ROLEKEY/" in headers["authorization"]
        assert headers["x-amz-security-token"] == "role-token"


async def test_a_role_taken_with_given_keys(server: Server) -> None:
    store = open_store(
        s3_settings(server.endpoint, role_arn=ROLE, access_key="GIVEN", secret_key="given-secret")
    )
    await store.put_bytes("a", b"1")
    assert "Credential=GIVEN/" in server.asked[0][1]["authorization"]


async def test_a_role_that_is_refused(server: Server) -> None:
    server.gives_roles = False
    store = open_store(s3_settings(server.endpoint, profile="archive", role_arn=ROLE, **NO_KEYS))
    with pytest.raises(Unavailable) as error:
        await store.put_bytes("a", b"1")
    assert f"no credentials (AccessDenied) from role {ROLE} (storage.durable.role_arn)" in error.value.text
    assert "allow sts:AssumeRole" in error.value.text
    assert "profile-secret" not in error.value.text


@pytest.mark.parametrize(
    ("profile", "text"),
    [("unknown", "in none of the AWS configuration files"), ("empty", "holds no credentials")],
)
def test_a_profile_that_cannot_be_used(server: Server, profile: str, text: str) -> None:
    with pytest.raises(Rejected, match=text):
        open_store(s3_settings(server.endpoint, profile=profile, **NO_KEYS))
