"""Runs of many topics in one file: each as it would be in its own, beginning on a block of 4 KiB.

A file costs the same whatever is in it: its name, its syncs, its directory's sync. Topics that have little in a journal
file share that cost.
"""

import hashlib
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from pydanube.entries.blocks import BLOCK_BYTES
from pydanube.entries.run_file import RunDescriptor, encode_run

RUNS_MAX: Final = 250
"""Their descriptors are stored in one transaction, which is bounded."""

_PADDING: Final = bytes(BLOCK_BYTES)


class Bundle(NamedTuple):
    name: str
    buffers: list[bytes]
    runs: list[RunDescriptor]


def encode_bundle(parts: Sequence[tuple[Sequence[bytes], Sequence[bytes]]], *, created_ms: int) -> Bundle:
    """A file with one run for the heads and bodies of each part, in that order.

    Its name follows from what is in it: no two bundles that differ have the same.
    """
    buffers: list[bytes] = []
    runs: list[RunDescriptor] = []
    digest = hashlib.blake2b(digest_size=16)
    position = 0
    for heads, bodies in parts:
        encoded, run = encode_run(heads, bodies, created_ms=created_ms)
        runs.append(msgspec.structs.replace(run, position=position))
        digest.update(f"{run.run_id} {run.checksum} ".encode())
        padding = -run.size % BLOCK_BYTES
        buffers += encoded
        buffers.append(_PADDING[:padding])
        position += run.size + padding
    name = f"{created_ms:013}-{digest.hexdigest()}.bundle"
    return Bundle(name, buffers, [msgspec.structs.replace(run, bundle=name) for run in runs])
