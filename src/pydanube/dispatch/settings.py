"""What an operator sets on a reliable subscription."""

from dataclasses import dataclass
from typing import Final

from pydanube.kernel.policies import FailurePolicy

WINDOW_DEFAULT: Final = 10
WINDOW_BYTES_DEFAULT: Final = 64 * 1024 * 1024


@dataclass(frozen=True)
class Settings:
    """`window` messages and `window_bytes` bytes may be unacked; `dispatch_rate` is per second, 0 = no limit."""

    window: int
    window_bytes: int
    policy: FailurePolicy
    dispatch_rate: int
