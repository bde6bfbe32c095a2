"""What is sent: bytes that compress about as badly as real ones, made before the clock starts."""

import random
from collections.abc import Iterator
from typing import Final

from pydanube.bench.plan import STAMP_BYTES

POOL_MESSAGES_MAX: Final = 1000
POOL_BYTES_MAX: Final = 8 * 1024 * 1024

_WORDS: Final = [
    f"{kind}={number}" for kind in ("id", "price", "amount", "state") for number in range(97, 257)
]


def pool(*, size: int, seed: int) -> list[bytes]:
    """Different payloads of one size, to be sent in turn: text of few words, which shrinks to about a third."""
    dice = random.Random(seed)
    count = max(1, min(POOL_MESSAGES_MAX, POOL_BYTES_MAX // max(size, 1)))
    return [_text(dice, size) for _ in range(count)]


def numbered(payloads: list[bytes], *, first: int, count: int) -> Iterator[bytes]:
    """The payloads in turn, each beginning with its sequence number as far as that fits."""
    if not payloads or len(payloads[0]) < STAMP_BYTES:
        yield from (payloads[number % len(payloads)] for number in range(first, first + count))
        return
    tails = [payload[STAMP_BYTES:] for payload in payloads]
    for number in range(first, first + count):
        yield number.to_bytes(STAMP_BYTES, "little") + tails[number % len(tails)]


def _text(dice: random.Random, size: int) -> bytes:
    words: list[str] = []
    length = 0
    while length < size:
        word = dice.choice(_WORDS)
        words.append(word)
        length += len(word) + 1
    return " ".join(words).encode()[:size].ljust(size, b" ")
