"""Who owns which routing key: spread by count, kept while used, moved as little as possible."""

from collections.abc import Iterable
from typing import Final

from pydanube.dispatch.consumer import Consumer

KEYS_REMEMBERED_MAX: Final = 16_384
"""Keys of a subscription whose owner is remembered though none of their messages is under way."""
KEY_LENGTH_REMEMBERED_MAX: Final = 256
"""Longer keys are not remembered."""


class OwnedKey:
    """A routing key and the consumer that gets its messages; None if nobody can for now."""

    __slots__ = ("key", "owner")

    def __init__(self, key: str | bytes) -> None:
        self.key = key
        self.owner: Consumer | None = None

    def give(self, owner: Consumer | None) -> None:
        if self.owner is not None:
            self.owner.keys_owned -= 1
        self.owner = owner
        if owner is not None:
            owner.keys_owned += 1


def least_loaded(consumers: Iterable[Consumer], key: str | bytes) -> Consumer | None:
    """The consumer to own a new key: connected rather than not, then the fewest keys, then the earliest."""
    best: Consumer | None = None
    for consumer in consumers:
        if not consumer.live:
            continue
        if best is not None and (
            (best.attached and not consumer.attached)
            or (best.attached == consumer.attached and best.keys_owned <= consumer.keys_owned)
        ):
            continue
        if consumer.filters.accept(key):
            best = consumer
    return best


def pull_fair_share(newcomer: Consumer, consumers: Iterable[Consumer], keys: Iterable[OwnedKey]) -> None:
    """Move keys to a newcomer until it owns as many as the others: 1/N of them, and no other key moves."""
    peers = [consumer for consumer in consumers if consumer.attached]
    fair = sum([consumer.keys_owned for consumer in peers]) // len(peers)
    for owned in keys:
        if newcomer.keys_owned >= fair:
            return
        owner = owned.owner
        if owner is None or owner is newcomer or owner.keys_owned <= fair:
            continue
        if newcomer.filters.accept(owned.key):
            owned.give(newcomer)
