"""`danube broker`: run a broker in the foreground."""

from pathlib import Path

import click

from pydanube.kernel.errors import DanubeError
from pydanube.server.config_file import load_config
from pydanube.server.listeners import AddressFlags
from pydanube.server.logging import configure_logging
from pydanube.server.main import run

_NOT_YET = "needs a cluster or an edge, and this release runs standalone only: leave it out"


@click.command()
@click.option(
    "--mode",
    type=click.Choice(["standalone", "cluster", "edge"], case_sensitive=False),
    default="standalone",
    show_default=True,
    help="This release runs standalone.",
)
@click.option(
    "--config-file", type=click.Path(path_type=Path), help="YAML file; see deploy/danube.yml for every key."
)
@click.option(
    "--data-dir", metavar="FOLDER", help="Folder of everything the broker keeps.  [default: danube-data]"
)
@click.option("--broker-addr", metavar="IP:PORT", help="Where clients connect.  [default: 127.0.0.1:6650]")
@click.option(
    "--admin-addr",
    metavar="IP:PORT",
    help="Where the administration commands connect.  [default: 127.0.0.1:50051]",
)
@click.option(
    "--prom-exporter", metavar="IP:PORT|off", help="Where metrics are read.  [default: 127.0.0.1:9040]"
)
@click.option("--advertised-addr", metavar="HOST:PORT", help="What clients are told to dial.")
@click.option(
    "--connect-url", metavar="HOST:PORT", help="The proxy clients are told to dial, if there is one."
)
@click.option("--raft-addr", hidden=True)
@click.option("--seed-nodes", hidden=True)
@click.option("--join", is_flag=True, hidden=True)
@click.option("--edge-config", hidden=True)
@click.option("--edge-token", hidden=True)
def broker(
    *,
    mode: str,
    config_file: Path | None,
    data_dir: str | None,
    broker_addr: str | None,
    admin_addr: str | None,
    prom_exporter: str | None,
    advertised_addr: str | None,
    connect_url: str | None,
    **not_yet: str | bool | None,
) -> None:
    """Run a broker until Ctrl-C.

    Without any option: a standalone broker on 127.0.0.1:6650 that keeps its data in ./danube-data.
    Settings come from the file, then DANUBE_… environment variables, then these options. The log goes to
    stderr; DANUBE_LOG sets its level.
    """
    if mode != "standalone":
        raise click.UsageError(f"mode {mode} is not supported yet by this release: use --mode standalone")
    for name, value in not_yet.items():
        if value:
            raise click.UsageError(f"--{name.replace('_', '-')} {_NOT_YET}")

    try:
        configure_logging()
        config = load_config(
            config_file,
            data_dir=data_dir,
            addresses=AddressFlags(
                broker_addr=broker_addr,
                admin_addr=admin_addr,
                prom_exporter=prom_exporter,
                advertised_addr=advertised_addr,
                connect_url=connect_url,
            ),
        )
    except DanubeError as error:
        raise click.ClickException(error.text) from error
    raise SystemExit(run(config))
