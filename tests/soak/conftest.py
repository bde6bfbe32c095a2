"""The soak is the package `tests.soak`, as `python -m tests.soak` sees it: make it importable here too."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))
