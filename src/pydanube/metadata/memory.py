"""A store that keeps nothing: for tests, and for brokers whose facts may die with them."""

from pydanube.kernel.clock import Clock
from pydanube.metadata.command_store import CommandStore
from pydanube.metadata.commands import Command, Outcome
from pydanube.metadata.history import History
from pydanube.metadata.keyspace import Keyspace
from pydanube.metadata.store import Entry


class MemoryStore(CommandStore):
    """The whole contract of `MetadataStore` on one dictionary."""

    def __init__(self, clock: Clock, *, history: History | None = None) -> None:
        super().__init__(clock, history or History(0))
        self._keyspace = Keyspace()

    async def _execute(self, command: Command) -> Outcome:
        outcome = self._keyspace.apply(command)
        self._history.record(outcome.changes, outcome.revision)
        return outcome

    async def _read_entry(self, key: str) -> Entry | None:
        return self._keyspace.get(key)

    async def _read_entries(self, prefix: str) -> list[Entry]:
        return self._keyspace.list(prefix)

    async def _release(self) -> None:
        self._keyspace = Keyspace()
