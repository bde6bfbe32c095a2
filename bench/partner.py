"""A process at the other end of a connection, so that what it spends is not counted here."""

import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_PROGRAM: Final = """
import socket, sys
with open(sys.argv[2], "rb") as file:
    frame = file.read()
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as peer:
    buffer = bytearray(1 << 20)
    while not frame and peer.recv_into(buffer):
        pass
    while frame:
        try:
            peer.sendall(frame)
        except OSError:
            break
"""


@contextmanager
def partner(frame: bytes = b"") -> Iterator[socket.socket]:
    """A connection whose other end sends the frame again and again, or takes everything if there is none."""
    with socket.create_server(("127.0.0.1", 0)) as listening, tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "frame"
        file.write_bytes(frame)
        port = str(listening.getsockname()[1])
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, port, str(file)])
        try:
            ours, _ = listening.accept()
            with ours:
                yield ours
        finally:
            process.kill()
            process.wait()
