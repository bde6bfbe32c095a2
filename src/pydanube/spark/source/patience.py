"""Asking brokers that may be restarting."""

import logging
import time
from collections.abc import Callable
from typing import Final, TypeVar

from pydanube.client import blocking
from pydanube.client.retries import Patience, Retries
from pydanube.kernel.errors import Unavailable
from pydanube.spark.connection import Connection

logger = logging.getLogger("pydanube.spark")

RETRIES: Final = Retries(attempts_max=100, backoff=0.2, backoff_max=5.0, seconds_max=120.0)

T = TypeVar("T")


def patiently(connection: Connection, work: Callable[[blocking.Client], T], retries: Retries = RETRIES) -> T:
    """Do something that changes nothing; while no broker answers, do it again with a new client."""
    patience = Patience(retries)
    while True:
        try:
            with connection.client() as client:
                return work(client)
        except Unavailable as error:
            pause = patience.failed(time.monotonic())
            if pause is None:
                raise
            logger.warning("%s; trying again in %.1f s", error.text, pause)
            time.sleep(pause)
