"""Values from the environment, so that files need hold no secrets: ${env:NAME}."""

import os
import re
from collections.abc import Mapping
from typing import Final

from pydanube.kernel.errors import Rejected

_VARIABLE: Final = re.compile(r"\$\{env:(\w+)\}")


def has_variables(text: str) -> bool:
    return _VARIABLE.search(text) is not None


def missing_variables(text: str) -> list[str]:
    """Those a text names that are not set."""
    return [name for name in _VARIABLE.findall(text) if name not in os.environ]


def filled(text: str) -> str:
    """A text with its variables.

    Raises:
        Rejected: one is not set.
    """
    if missing := missing_variables(text):
        raise Rejected(
            f"the environment variable {missing[0]} is not set, and a value of the pipeline names it"
        )
    return _VARIABLE.sub(lambda found: os.environ[found[1]], text)


def filled_all(options: Mapping[str, str]) -> dict[str, str]:
    return {name: filled(value) for name, value in options.items()}
