"""A clock in the test's hand, a store in memory, and keys that are made once."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pydanube.metadata import MemoryStore
from pydanube.security.policy_store import PolicyStore

NOW_MS = 1_800_000_000_000


class HandClock:
    """Stands still until the test moves it."""

    def __init__(self) -> None:
        self.wall_ms = NOW_MS
        self.ticks_ms = 5_000

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic_ms(self) -> int:
        return self.ticks_ms

    def advance(self, milliseconds: int) -> None:
        self.wall_ms += milliseconds
        self.ticks_ms += milliseconds


@dataclass(frozen=True)
class KeyPair:
    private_pem: bytes
    public_pem: bytes


def pair(key: rsa.RSAPrivateKey | Ed25519PrivateKey) -> KeyPair:
    return KeyPair(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    )


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="session")
def rsa_pair() -> KeyPair:
    return pair(rsa.generate_private_key(public_exponent=65537, key_size=2048))


@pytest.fixture(scope="session")
def ed_pair() -> KeyPair:
    return pair(Ed25519PrivateKey.generate())


@pytest.fixture
async def metadata(clock: HandClock) -> AsyncIterator[MemoryStore]:
    store = MemoryStore(clock)
    yield store
    await store.close()


@pytest.fixture
async def policies(metadata: MemoryStore) -> AsyncIterator[PolicyStore]:
    store = PolicyStore(metadata, super_admins={"root"})
    await store.start()
    yield store
    await store.close()
