"""What a store in a cloud does when the network or the server fails: a real S3 server behind a proxy."""

import asyncio
import socket
from pathlib import Path

import pytest

from pydanube.kernel.errors import Conflict, ErrorCode, Unavailable
from pydanube.stores.retrying import Retrying
from pydanube.stores.settings import Backend, DurableSettings, open_store
from pydanube.stores.store import DurableStore, Missing
from tests.contract.stores import peer_servers as peers
from tests.contract.stores.conftest import SERVICE_ACCOUNT, as_google_would, s3_settings
from tests.contract.stores.fault_proxy import FaultProxy, Request

LARGE = bytes(range(256)) * (80 * 1024)


class Halves:
    def new_id(self) -> int:
        return 500


async def no_pause(_: float) -> None:
    return None


def is_part(request: Request) -> bool:
    return request.method == "PUT" and "partNumber=" in request.target


def is_completion(request: Request) -> bool:
    return request.method == "POST" and "uploadId=" in request.target


def is_read(request: Request) -> bool:
    return request.method == "GET"


def is_put(request: Request) -> bool:
    return request.method == "PUT"


@pytest.fixture
def settings(proxy: FaultProxy) -> DurableSettings:
    return s3_settings(proxy.endpoint)


@pytest.fixture
def store(settings: DurableSettings) -> DurableStore:
    return open_store(settings)


@pytest.fixture
def retrying(store: DurableStore) -> Retrying:
    return Retrying(store, Halves(), attempts=4, sleep=no_pause)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    return file


async def keys(store: DurableStore) -> list[str]:
    return [found.key async for found in store.list("")]


def refused(error: pytest.ExceptionInfo[Unavailable]) -> str:
    assert error.value.code is ErrorCode.STORAGE_FAILED
    assert peers.WRITER[1] not in repr(error.value)
    assert error.value.__cause__ is None, "the library's own text may hold what nobody should read"
    return error.value.text


async def test_a_server_that_fails_once_is_asked_again(store: DurableStore, proxy: FaultProxy) -> None:
    await store.put_bytes("a", b"data")
    proxy.plan("answer", status=500)
    assert await store.read("a", 0, 4) == b"data"


async def test_a_server_that_keeps_failing(store: DurableStore, proxy: FaultProxy) -> None:
    proxy.plan("answer", status=500, times=100)
    with pytest.raises(Unavailable) as error:
        await store.put_bytes("a", b"data")
    assert f"{proxy.endpoint} answered 500: look at the store's own log" in refused(error)
    with pytest.raises(Unavailable, match="answered 500"):
        await store.read("a", 0, 4)
    with pytest.raises(Unavailable, match="answered 500"):
        await keys(store)
    with pytest.raises(Unavailable, match="answered 500"):
        await store.delete("a")
    proxy.heal()
    assert await keys(store) == []


async def test_a_server_that_asks_to_slow_down(store: DurableStore, proxy: FaultProxy) -> None:
    proxy.plan("answer", status=429, times=100)
    with pytest.raises(Unavailable) as error:
        await store.put_bytes("a", b"data")
    assert "asks to slow down" in refused(error)


async def test_a_server_that_is_not_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Unavailable) as error:
        await open_store(s3_settings(endpoint)).put_bytes("a", b"data")
    assert f"{endpoint} refuses connections" in refused(error)


async def test_a_server_that_never_answers(proxy: FaultProxy) -> None:
    store = open_store(s3_settings(proxy.endpoint, request_timeout_seconds=1, max_retries=0))
    proxy.plan("silence", times=100)
    with pytest.raises(Unavailable) as error:
        await store.put_bytes("a", b"data")
    assert "did not answer in time" in refused(error)
    assert "storage.durable.request_timeout_seconds" in refused(error)
    with pytest.raises(Unavailable, match="did not answer in time"):
        await store.read("a", 0, 1)


async def test_a_connection_cut_in_the_middle_of_a_body(store: DurableStore, proxy: FaultProxy) -> None:
    await store.put_bytes("a", b"0123456789" * 1000)
    proxy.plan("truncate", matching=is_read, times=100)
    with pytest.raises(Unavailable):
        await store.read("a", 0, 10_000)
    proxy.heal()
    assert await store.read("a", 0, 10_000) == b"0123456789" * 1000


async def test_a_connection_reset_is_tried_again(retrying: Retrying, proxy: FaultProxy) -> None:
    proxy.plan("reset", matching=is_put, times=2)
    await retrying.put_bytes("a", b"data")
    proxy.plan("reset", matching=is_read, times=2)
    assert await retrying.read("a", 0, 4) == b"data"
    assert retrying.stats.retries >= 2
    assert (retrying.stats.uploads, retrying.stats.upload_failures) == (1, 0)


@pytest.mark.parametrize("status", [0, 503], ids=["reset", "gateway-error"])
async def test_an_answer_that_was_lost_is_no_conflict_with_oneself(
    retrying: Retrying, proxy: FaultProxy, status: int
) -> None:
    proxy.plan("lose_answer", matching=is_put, status=status)
    await retrying.put_bytes("a", b"data")
    assert len([each for each in proxy.requests if is_put(each)]) == 2
    assert await retrying.read_whole("a", size_max=10) == b"data"


async def test_somebody_elses_object_stays_a_conflict_after_a_failure(
    retrying: Retrying, store: DurableStore, proxy: FaultProxy
) -> None:
    await store.put_bytes("a", b"theirs")
    proxy.plan("reset", matching=is_put)
    with pytest.raises(Conflict):
        await retrying.put_bytes("a", b"ours!!")
    assert await store.read_whole("a", size_max=10) == b"theirs"


async def test_a_failed_part_is_sent_again(store: DurableStore, proxy: FaultProxy, large: Path) -> None:
    proxy.plan("answer", matching=is_part, status=503)
    await store.put_file("large", large)
    assert await store.read("large", 0, len(LARGE)) == LARGE


async def test_an_upload_that_lacks_a_part_is_not_visible(
    store: DurableStore, proxy: FaultProxy, large: Path
) -> None:
    proxy.plan("answer", matching=is_part, status=503, times=100)
    with pytest.raises(Unavailable, match="answered 503"):
        await store.put_file("large", large)
    assert await keys(store) == []
    with pytest.raises(Missing):
        await store.read("large", 0, 1)
    proxy.heal()
    await store.put_file("large", large)
    assert await keys(store) == ["large"]


async def test_an_upload_is_not_visible_before_its_end(
    store: DurableStore, proxy: FaultProxy, large: Path
) -> None:
    held = proxy.plan("hold", matching=is_completion)
    upload = asyncio.create_task(store.put_file("large", large))
    await held.met.wait()
    assert await keys(store) == []
    assert await store.read_whole("large", size_max=1 << 30) is None
    held.release.set()
    await upload
    assert await keys(store) == ["large"]


async def test_a_cancelled_upload_is_not_visible(store: DurableStore, proxy: FaultProxy, large: Path) -> None:
    held = proxy.plan("hold", matching=is_part, times=100)
    upload = asyncio.create_task(store.put_file("large", large))
    await held.met.wait()
    upload.cancel()
    with pytest.raises(asyncio.CancelledError):
        await upload
    proxy.heal()
    assert await keys(store) == []


async def test_parts_under_way_are_bounded(proxy: FaultProxy, large: Path) -> None:
    store = open_store(s3_settings(proxy.endpoint, upload_part_mb=5, upload_concurrency=2))
    held = proxy.plan("hold", matching=is_part, times=2)
    upload = asyncio.create_task(store.put_file("large", large))
    await held.met.wait()
    await store.put_bytes("meanwhile", b"")
    assert len([each for each in proxy.requests if is_part(each)]) <= 2
    held.release.set()
    await upload


async def test_keys_that_may_only_read(
    proxy: FaultProxy, store: DurableStore, settings: DurableSettings
) -> None:
    await store.put_bytes("a", b"data")
    reader = open_store(
        s3_settings(
            proxy.endpoint, root=settings.root, access_key=peers.READER[0], secret_key=peers.READER[1]
        )
    )
    assert await reader.read("a", 0, 4) == b"data"
    with pytest.raises(Unavailable) as error:
        await reader.put_bytes("b", b"data")
    text = refused(error)
    assert "access denied (AccessDenied) with the key of storage.durable.access_key" in text
    assert "grant s3:PutObject" in text
    assert f"arn:aws:s3:::{peers.BUCKET}/" in text
    with pytest.raises(Unavailable, match="grant s3:DeleteObject"):
        await reader.delete("a")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"secret_key": "not-the-secret"}, "the secret key does not fit the access key"),
        ({"access_key": "nobody"}, "the access key is unknown to the store"),
        ({"root": "no-such-bucket/x"}, "bucket 'no-such-bucket' does not exist at http://127.0.0.1:"),
        ({"access_key": None, "secret_key": None, "anonymous": True}, "with no credentials"),
    ],
)
async def test_what_is_wrong_is_named(proxy: FaultProxy, changes: dict[str, object], text: str) -> None:
    store = open_store(s3_settings(proxy.endpoint, **changes))
    for attempt in (store.put_bytes("a", b"data"), keys(store)):
        with pytest.raises(Unavailable) as error:
            await attempt
        assert text in refused(error)
        assert "not-the-secret" not in refused(error)


async def test_a_missing_bucket_is_no_missing_object(proxy: FaultProxy) -> None:
    store = open_store(s3_settings(proxy.endpoint, root="no-such-bucket/x"))
    with pytest.raises(Unavailable, match="does not exist"):
        await store.read("a", 0, 1)


async def test_anonymous_and_environment(
    proxy: FaultProxy, seaweedfs: peers.PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = {"access_key": None, "secret_key": None}
    stranger = open_store(s3_settings(proxy.endpoint, root=peers.OPEN_BUCKET, anonymous=True, **none))
    await stranger.put_bytes("by/nobody", b"1")
    await stranger.delete("by/nobody")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", peers.WRITER[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", peers.WRITER[1])
    await open_store(s3_settings(proxy.endpoint, **none)).put_bytes("a", b"1")


async def test_given_keys_are_not_mixed_with_a_token_of_the_environment(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "somebody-elses-secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "somebody-elses-token")
    await open_store(s3_settings(proxy.endpoint)).put_bytes("a", b"1")


async def test_signed_payloads(proxy: FaultProxy, large: Path) -> None:
    store = open_store(s3_settings(proxy.endpoint, sign_payload=True))
    await store.put_file("large", large)
    assert await store.read("large", 0, len(LARGE)) == LARGE


async def test_the_bucket_goes_into_the_host_name_or_the_path(
    proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Through a proxy no name has to be resolved: it is told the whole address.
    monkeypatch.setenv("http_proxy", proxy.endpoint)
    proxy.plan("answer", status=501, times=100)
    for is_virtual, address in (
        (True, f"http://{peers.BUCKET}.store.example/below/a"),
        (False, f"http://store.example/{peers.BUCKET}/below/a"),
    ):
        store = open_store(
            s3_settings(
                "http://store.example",
                root=f"{peers.BUCKET}/below",
                virtual_host_style=is_virtual,
                max_retries=0,
            )
        )
        with pytest.raises(Unavailable, match="answered 501"):
            await store.put_bytes("a", b"1")
        assert proxy.requests[-1].target == address


async def test_the_project_that_pays_is_named_to_google(seaweedfs: peers.PeerServer) -> None:
    heads: list[bytes] = []

    def noted(head: bytes) -> bytes:
        heads.append(head)
        return as_google_would(head)

    async with FaultProxy(seaweedfs.port, noted) as proxy:
        store = open_store(
            DurableSettings(
                backend=Backend.GCS,
                root=peers.OPEN_BUCKET,
                endpoint=proxy.endpoint,
                credentials_json=SERVICE_ACCOUNT,
                project="who-pays",
            )
        )
        assert await store.read_whole("nothing/here", size_max=1) is None
    assert b"x-goog-user-project: who-pays\r\n" in heads[0].lower()
