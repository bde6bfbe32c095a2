"""Kill a broker at every step of storing history, with one seed after the other.

python -m tests.fault.storage --seeds 20 --mode object_store --seed 7
"""

import argparse
import asyncio
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.contract.stores import peer_servers
from tests.fault.storage import modes
from tests.fault.storage.tale import tell

MODES = ("local", "shared_fs", "object_store")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fault.storage", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="how many tales per mode (default 5)")
    parser.add_argument("--seed", default=None, help="repeat the plan of an earlier run")
    parser.add_argument("--mode", choices=MODES, action="append", help="only this one; may be repeated")
    arguments = parser.parse_args()
    seed = arguments.seed or str(secrets.randbelow(1_000_000))
    chosen = arguments.mode or list(MODES)
    print(f"seed {seed}, {arguments.seeds} tales in each of {', '.join(chosen)}", flush=True)
    base = Path(tempfile.mkdtemp(prefix="danube-storage-"))
    server = None
    if "object_store" in chosen:
        (base / "s3").mkdir()
        server = peer_servers.start_seaweedfs(base / "s3")
    try:
        for number in range(arguments.seeds):
            for name in chosen:
                folder = base / f"{name}-{number}"
                print(f"{name}, seed {seed}/{number}", flush=True)
                endpoint = "" if server is None else server.endpoint
                asyncio.run(_tell_one(folder, name, endpoint, f"{seed}/{number}"))
                shutil.rmtree(folder)
    finally:
        if server is not None:
            server.stop()
    shutil.rmtree(base)
    print("clean")
    return 0


async def _tell_one(folder: Path, name: str, endpoint: str, seed: str) -> None:
    mode = modes.object_store(endpoint) if name == "object_store" else getattr(modes, name)(folder)
    told = await tell(folder, mode, seed, say=lambda text: print(f"  {text}", flush=True))
    print(
        f"  {told.ledger_acknowledged} + {len(told.orders_acknowledged)} acknowledged, all there", flush=True
    )


if __name__ == "__main__":
    sys.exit(main())
