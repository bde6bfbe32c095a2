"""Devices, a topic, a typed Iceberg table, SQL and a plot; README.md explains each step.

python examples/iot_lakehouse/run.py
"""

import shlex
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click
import pyarrow as pa
from devices import make_devices, readings
from own_broker import Broker, own_broker
from plot import draw
from pyspark.sql import SparkSession

from pydanube.cli.main import main as danube_command
from pydanube.client import blocking
from pydanube.client.schema_records import SchemaRef

HERE = Path(__file__).parent
TOPIC = "/default/readings"
SUBJECT = "readings"
TABLE = "iot.readings"


@click.command(context_settings={"show_default": True})
@click.option("--devices", "count", type=click.IntRange(1, 5_000), default=300, help="How many there are.")
@click.option("--hours", type=click.IntRange(2, 24 * 60), default=72, help="How long they measure.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="New folder for results.")
@click.option("--broker", help="Use this one, such as danube://127.0.0.1:6650, instead of one for this run.")
@click.option("--admin-addr", default="127.0.0.1:50051", help="Admin port of --broker.")
def main(count: int, hours: int, out: Path | None, broker: str | None, admin_addr: str) -> None:
    """From devices to a plot."""
    started = time.monotonic()
    out = _new_folder(out)
    running: AbstractContextManager[Broker] = (
        nullcontext(Broker(broker, admin_addr)) if broker else own_broker()
    )
    with running as where:
        published = _run(where, out, count, hours)
    _report(out, published)
    click.echo(f"\nResults are in {out}; that took {time.monotonic() - started:.0f} s.")


def _run(broker: Broker, out: Path, count: int, hours: int) -> int:
    """Returns how many readings were published."""
    admin = ("--admin-addr", broker.admin_address)
    devices = make_devices(count)
    upgrade = hours // 2

    _step("1. What a reading looks like, and where readings go")
    schema = str(HERE / "schemas" / "reading-1.json")
    danube("schemas", "register", SUBJECT, "--schema-type", "json_schema", "--file", schema, *admin)
    danube("topics", "create", TOPIC, "--dispatch-strategy", "reliable", "--schema-subject", SUBJECT, *admin)

    _step(f"2. {count} devices with firmware 1 send readings for {upgrade} hours")
    published = _publish(broker, 1, readings(devices, 0, upgrade, firmware=1))
    danube("topics", "seal", TOPIC, *admin)

    _step("3. The topic becomes an Iceberg table")
    sync = ("lakehouse", "sync", TOPIC, "--once", "--catalog", "hadoop", "--warehouse", str(out / "lake"))
    sync += ("--table", TABLE, "--partition-by", "days(measured_at)", "--broker", broker.url)
    danube(*sync)

    _step("4. Firmware 2 measures humidity as well: a new version of the schema, and readings that have it")
    schema = str(HERE / "schemas" / "reading-2.json")
    danube("schemas", "register", SUBJECT, "--schema-type", "json_schema", "--file", schema, *admin)
    published += _publish(broker, 2, readings(devices, upgrade, hours, firmware=2))

    _step("5. The table goes on where it was, and gets the new column; these readings are in no segment yet")
    danube(*sync)
    return published


def _publish(broker: Broker, version: int, tables: Iterable[pa.Table]) -> int:
    sent = 0
    with (
        blocking.connect(broker.url) as client,
        client.producer(TOPIC, schema=SchemaRef(SUBJECT, version=version)) as producer,
    ):
        for table in tables:
            sent += sum(run.messages for run in producer.send_table(table))
    click.echo(f"{sent:,} readings published by schema version {version}")
    return sent


def _report(out: Path, published: int) -> None:
    # The session of the sync: it knows the table's catalog by the name danube_lake.
    spark = SparkSession.active()

    def ask(file: str) -> pa.Table:
        return spark.sql((HERE / "sql" / file).read_text()).toArrow()

    _step("6. SQL: the table")
    sites = ask("sites.sql").to_pandas()
    click.echo(sites.to_string(index=False))
    rows = int(sites["readings"].sum())

    _step("7. SQL: what did not fit the schema is kept beside it, with the reason")
    bad = spark.table(f"danube_lake.{TABLE}_quarantine").count()
    for row in ask("quarantine.sql").to_pylist():
        click.echo(
            f"offset {row['offset']} of {row['device']}, schema version {row['version']}: {row['reason']}"
        )
        click.echo(f"    {row['payload']}")
    click.echo(f"{published:,} published = {rows:,} in the table + {bad:,} in quarantine")
    if published != rows + bad:
        raise click.ClickException("the numbers do not match: was the topic new?")

    _step("8. The plot")
    picture = out / "readings.png"
    draw(ask("hours.sql").to_pandas(), picture)
    click.echo(f"{picture}")


def danube(*words: str) -> None:
    """Run a command as a shell would; in this process, so that Spark starts once for all of them."""
    click.secho(f"$ danube {shlex.join(words)}", fg="cyan")
    danube_command.main(args=list(words), prog_name="danube", standalone_mode=False)


def _step(title: str) -> None:
    click.secho(f"\n{title}", bold=True)


def _new_folder(out: Path | None) -> Path:
    if out is None:
        return Path(tempfile.mkdtemp(prefix="danube-iot-"))
    if out.exists() and any(out.iterdir()):
        raise click.BadParameter(f"{out} has something in it already", param_hint="--out")
    out.mkdir(parents=True, exist_ok=True)
    return out.resolve()


if __name__ == "__main__":
    main()
