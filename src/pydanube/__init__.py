"""pydanube: a publish/subscribe messaging platform where a topic is a queue, a log and a table.

Start reading at `docs/architecture.md`, then `docs/journey.md`.
"""

import os

__version__ = "0.1.0"

if os.environ.get("PYDANUBE_PURE"):
    # The hot cores may exist twice, as source and compiled beside it; this asks for the source.
    from pydanube._pure import prefer_source

    prefer_source()
