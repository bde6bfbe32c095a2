"""What a Spark job is at, on stderr, for people; programs and files get nothing."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
Say = Callable[[str], None]
_LOOK_EVERY_SECONDS: Final = 0.3


@contextmanager
def status_line(text: str) -> Iterator[Say]:
    """A line that tells the step under way; call it with the next one."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console  # noqa: PLC0415 - slow to load

    with Console(stderr=True).status(text) as status:
        yield status.update


@contextmanager
def tasks_shown(spark: "SparkSession", say: Say) -> Iterator[None]:
    """Tell how many tasks are done, as long as the context lasts."""
    if not sys.stderr.isatty() or not hasattr(spark, "_jsparkSession"):
        yield
        return
    done = Event()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not done.wait(_LOOK_EVERY_SECONDS):
            stages = [tracker.getStageInfo(each) for each in tracker.getActiveStageIds()]
            counts = [(each.numCompletedTasks, each.numTasks) for each in stages if each is not None]
            if counts:
                completed, total = (sum(each) for each in zip(*counts, strict=True))
                say(f"running: {completed} of {total} tasks done")

    watcher = Thread(target=look, name="danube-spark-tasks", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


@contextmanager
def beside_ctrl_c() -> Iterator[Callable[[Callable[[], Result]], Future[Result]]]:
    """Calls of Spark that take long, made where Ctrl-C does not hit them: the bridge to Java answers that with noise.

    The one who waits for the future gets it instead; Spark has cancelled its jobs by then.
    """
    caller = ThreadPoolExecutor(1, "danube-spark-call")
    try:
        yield caller.submit
    finally:
        caller.shutdown(wait=False, cancel_futures=True)
