"""`python -m tests.spark.exactly_once --rounds 20`: Spark and the broker are killed at random points, for as long as wanted.

Each round copies files and a topic anew, with its own seed; a round that fails names it, so that `--seed` repeats it.
"""

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

sys.path.insert(0, str(Path(__file__).parent))

from spark_harness.broker_process import BrokerProcess
from spark_harness.copied_rows import BATCHES, kill_broker_at, live_on, prepare, stored_payloads
from spark_harness.copying import FROM_FILES, FROM_TOPIC
from spark_harness.dying_sink import FatalPoints

DEATHS_MAX = 4


@click.command()
@click.option("--rounds", default=5, show_default=True)
@click.option("--seed", default=0, show_default=True, help="Of the first round; the others count up.")
def main(rounds: int, seed: int) -> None:
    for number in range(seed, seed + rounds):
        with tempfile.TemporaryDirectory(prefix="danube-exactly-once-") as folder:
            click.echo(f"seed {number}: {play(Path(folder), number)}")


def play(folder: Path, seed: int) -> str:
    dice = random.Random(seed)
    broker = BrokerProcess(folder / "broker", {"storage": {"wal": {"rotation": {"max_bytes": 1 << 20}}}})
    work = folder / "work"
    work.mkdir()
    broker.start()
    try:
        rows = prepare(broker, work, seed=seed)
        points = FatalPoints(work / "points")
        planned = {_any_point(dice) for _ in range(dice.randint(1, DEATHS_MAX))}
        for point in planned:
            points.plan_death(point)
        if dice.random() < 0.5:
            # Met or not: whoever waits for it ends with this process.
            kill_broker_at(broker, points, f"from-topic-batch{dice.randrange(BATCHES)}-before1")
        lives = live_on(broker, work, tasks=[dice.randint(1, 4) for _ in range(DEATHS_MAX)])
        for topic in (FROM_FILES, FROM_TOPIC):
            stored = stored_payloads(broker, topic)
            if stored != Counter(rows):
                lost, twice = Counter(rows) - stored, stored - Counter(rows)
                raise click.ClickException(f"seed {seed}: {topic} lacks {lost}, has too many of {twice}")
    finally:
        broker.kill()
    met = sorted(planned - set(points.unmet()))
    return f"every row once after {lives} lives, killed at {', '.join(met) or 'no point that was met'}"


def _any_point(dice: random.Random) -> str:
    where = dice.choice(["from-files", "from-topic"])
    batch = dice.randrange(BATCHES)
    return dice.choice(
        [
            f"{where}-commit{batch}",
            f"{where}-batch{batch}-end",
            f"{where}-batch{batch}-before{dice.randrange(3)}",
        ]
    )


if __name__ == "__main__":
    main()
