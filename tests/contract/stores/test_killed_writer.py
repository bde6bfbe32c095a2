"""A writer killed in the middle of a put: the object is not there, and the name can be used again."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import msgspec

from pydanube.stores.directory import DirectoryStore
from pydanube.stores.settings import open_store
from tests.contract.stores.conftest import s3_settings
from tests.contract.stores.fault_proxy import FaultProxy, Request

CONTENT = bytes(range(256)) * (80 * 1024)

WRITE_TO_S3 = """
import asyncio, sys
from pathlib import Path
import msgspec
from pydanube.stores.settings import DurableSettings, open_store

async def main():
    settings = msgspec.json.decode(sys.argv[1], type=DurableSettings)
    await open_store(settings).put_file("ns/topic/1", Path(sys.argv[2]))

asyncio.run(main())
"""

WRITE_TO_DIRECTORY = """
import asyncio, errno, os, sys
from pathlib import Path
from pydanube.stores.directory import DirectoryStore

def far_away(source, target, **options):
    raise OSError(errno.EXDEV, "another file system")

def stop_here(descriptor):
    print("midway", flush=True)
    sys.stdin.read()

os.link = far_away
os.fdatasync = stop_here
asyncio.run(DirectoryStore(Path(sys.argv[1])).put_file("ns/topic/1", Path(sys.argv[2])))
"""


async def start_writer(program: str, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        program,
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def kill(writer: asyncio.subprocess.Process) -> None:
    writer.kill()
    assert await writer.wait() == -signal.SIGKILL
    await writer.communicate()


async def test_killed_while_parts_go_up(proxy: FaultProxy, tmp_path: Path) -> None:
    def is_last_part(request: Request) -> bool:
        return request.method == "PUT" and "partNumber=3" in request.target

    file = tmp_path / "spool"
    file.write_bytes(CONTENT)
    settings = s3_settings(proxy.endpoint)
    held = proxy.plan("hold", matching=is_last_part)
    writer = await start_writer(WRITE_TO_S3, msgspec.json.encode(settings).decode(), str(file))
    await held.met.wait()
    await kill(writer)
    proxy.heal()
    store = open_store(settings)
    assert [found async for found in store.list("")] == []
    assert await store.read_whole("ns/topic/1", size_max=1 << 30) is None
    await store.put_file("ns/topic/1", file)
    assert await store.read("ns/topic/1", 0, len(CONTENT)) == CONTENT


async def test_killed_while_copying_into_a_directory(tmp_path: Path) -> None:
    file = tmp_path / "spool"
    file.write_bytes(CONTENT)
    writer = await start_writer(WRITE_TO_DIRECTORY, str(tmp_path / "objects"), str(file))
    assert writer.stdout is not None
    assert await writer.stdout.readline() == b"midway\n"
    await kill(writer)
    store = DirectoryStore(tmp_path / "objects")
    assert await store.read_whole("ns/topic/1", size_max=1 << 30) is None
    (leftover,) = [found async for found in store.list("ns")]
    assert leftover.key.startswith("ns/topic/1.")
    assert 0 < leftover.size < len(CONTENT)
    await store.put_file("ns/topic/1", file)
    await store.delete(leftover.key)
    assert [found.key async for found in store.list("")] == ["ns/topic/1"]
    assert await store.read("ns/topic/1", 0, len(CONTENT)) == CONTENT
    await store.close()
