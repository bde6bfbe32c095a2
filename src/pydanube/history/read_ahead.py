"""Reads the next run while one is converted: a disk answers slowly to who asks for little at a time."""

from collections.abc import Generator, Sequence
from threading import Event, Thread

from pydanube.history.convert_job import RunSource
from pydanube.history.run_entries import load_run


def read_ahead(runs: Sequence[RunSource]) -> Generator[RunSource]:
    """The runs in order. While one is used, a thread loads the next one; to be closed, which ends that."""
    is_over = Event()
    loading: Thread | None = None
    try:
        for run, following in zip(runs, [*runs[1:], None], strict=True):
            if loading is not None:
                loading.join()
            if following is not None:
                loading = Thread(
                    target=load_run, args=(following,), kwargs={"is_wanted": lambda: not is_over.is_set()}
                )
                loading.start()
            yield run
    finally:
        is_over.set()
        if loading is not None:
            loading.join()
