"""The command `danube`."""

from pathlib import Path

import click


@click.group()
def main() -> None:
    """Danube: publish/subscribe messaging."""


@main.command()
@click.option("--mode", default="standalone")
@click.option("--data-dir")
@click.option("--config-file", type=click.Path(path_type=Path))
@click.option("--broker-addr")
@click.option("--admin-addr")
@click.option("--prom-exporter")
@click.option("--advertised-addr")
@click.option("--connect-url")
@click.pass_context
def broker(
    context: click.Context,
    mode: str,
    data_dir: str | None,
    config_file: Path | None,
    broker_addr: str | None,
    admin_addr: str | None,
    prom_exporter: str | None,
    advertised_addr: str | None,
    connect_url: str | None,
) -> None:
    """Run a broker."""
    from pydanube.server.config_file import load_config
    from pydanube.server.listeners import AddressFlags
    from pydanube.server.logging import configure_logging
    from pydanube.server.main import run

    configure_logging()
    flags = AddressFlags(
        broker_addr=broker_addr,
        admin_addr=admin_addr,
        prom_exporter=prom_exporter,
        advertised_addr=advertised_addr,
        connect_url=connect_url,
    )
    context.exit(run(load_config(config_file, data_dir=data_dir, addresses=flags)))
