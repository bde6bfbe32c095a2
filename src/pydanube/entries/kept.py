"""Runs that stay where they were first written: in a journal file that is kept.

Behind the journal's own bytes each run has a section, which begins on a block:

    table of the run's places (extents.py), then header, index and footer of the run (run_file.py)

The first place of the table is the header, then come the entries where the journal wrote them, then index and footer: read
in that order they are the run, byte for byte as a file of its own would have it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pydanube.entries.blocks import BLOCK_BYTES, in_blocks
from pydanube.entries.entry import HEADER_BYTES as ENTRY_HEADER_BYTES
from pydanube.entries.extents import Place, encode_table, table_bytes
from pydanube.entries.run_file import RunDescriptor, encode_run


class KeptPart(NamedTuple):
    """Entries of one topic, and where in the file each of them begins."""

    heads: Sequence[bytes]
    bodies: Sequence[bytes]
    positions: Sequence[int]


def encode_sections(
    parts: Sequence[KeptPart], *, bundle: str, position: int, created_ms: int
) -> tuple[bytes, list[RunDescriptor]]:
    """What is written at `position` to keep the parts as runs in the file of that name, and their descriptors."""
    sections = bytearray()
    runs: list[RunDescriptor] = []
    for part in parts:
        begin = position + len(sections)
        assert begin % BLOCK_BYTES == 0, "a section that does not begin on a block"
        buffers, run = encode_run(part.heads, part.bodies, created_ms=created_ms)
        header, end = buffers[0], buffers[-2] + buffers[-1]
        stretches = _stretches(part)
        header_at = begin + table_bytes(len(stretches) + 2)
        places = [(header_at, len(header)), *stretches, (header_at + len(header), len(end))]
        sections += encode_table(places) + header + end
        sections += bytes(in_blocks(len(sections)) - len(sections))
        runs.append(msgspec.structs.replace(run, bundle=bundle, position=begin, places=len(places)))
    return bytes(sections), runs


def _stretches(part: KeptPart) -> list[Place]:
    """The entries' places, neighbours as one."""
    stretches: list[Place] = []
    begin = end = part.positions[0]
    for position, body in zip(part.positions, part.bodies, strict=True):
        if position != end:
            stretches.append((begin, end - begin))
            begin = position
        end = position + ENTRY_HEADER_BYTES + len(body)
    stretches.append((begin, end - begin))
    return stretches
