"""Messages that say who they are: a payload names its producer and sequence, and the rest follows from that."""

import hashlib
from typing import NamedTuple

NAME_BYTES_MAX = 64


class Message(NamedTuple):
    """One publish attempt's name; no two attempts share one."""

    producer: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.producer}#{self.sequence}"


class GarbledError(Exception):
    """A payload is not what any producer of this harness ever sends."""


def payload_of(message: Message, size: int) -> bytes:
    """The payload of a message: `size` bytes, or a few more if its name does not fit."""
    head = f"{message.producer} {message.sequence}\n".encode()
    block = hashlib.blake2b(head).digest()
    missing = max(size - len(head), 0)
    return head + (block * (missing // len(block) + 1))[:missing]


def message_in(payload: bytes) -> Message:
    """Read the name back and make sure that every byte belongs to it."""
    head, newline, _ = payload[:NAME_BYTES_MAX].partition(b"\n")
    producer, _, sequence = head.decode(errors="replace").partition(" ")
    if not newline or not sequence.isdigit():
        raise GarbledError(f"{len(payload)} bytes begin with {payload[:20]!r}, which names no message")
    message = Message(producer, int(sequence))
    if payload != payload_of(message, len(payload)):
        raise GarbledError(f"{len(payload)} bytes say they are {message}, but they differ from what it sent")
    return message
