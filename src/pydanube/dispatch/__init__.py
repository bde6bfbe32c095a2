"""Subscriptions as pure state machines: events in, decisions out.

Nothing here does I/O, reads a clock or throws dice: time comes in as `now_ms`, messages come in by `offer`,
and the driver in `broker` performs what `actions` lists, in order. May import only `kernel`. The same source
runs interpreted and compiled by mypyc.

Start reading at `reliable.py` (what every reliable subscription does with a message), then one kind:
`single_active.py` (Exclusive, Failover), `shared.py`, `key_shared.py`. Non-reliable topics use `live.py`.
Why it is shaped so: docs/adr/0004-subscriptions-as-state-machines.md.
"""

from pydanube.dispatch.actions import Action, DeadLetter, Deliver
from pydanube.dispatch.factory import live_subscription, reliable_subscription
from pydanube.dispatch.live import NOBODY, LiveSubscription
from pydanube.dispatch.reliable import NO_BYTE_LIMIT, ReliableSubscription
from pydanube.dispatch.settings import WINDOW_BYTES_DEFAULT, WINDOW_DEFAULT

__all__ = [
    "NOBODY",
    "NO_BYTE_LIMIT",
    "WINDOW_BYTES_DEFAULT",
    "WINDOW_DEFAULT",
    "Action",
    "DeadLetter",
    "Deliver",
    "LiveSubscription",
    "ReliableSubscription",
    "live_subscription",
    "reliable_subscription",
]
