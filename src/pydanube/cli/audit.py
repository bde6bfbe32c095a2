"""`danube audit`: all stored history read and compared with what was written."""

import click
import msgspec

from pydanube.cli.admin_connection import run_admin
from pydanube.cli.maintenance_job import Maintenance, end, maintenance_options
from pydanube.cli.tables import show_rows, size_text
from pydanube.cli.topic_argument import full_name
from pydanube.protocol import danube_admin_pb2 as pb

_COLUMNS = ("segments", "size", "messages", "payloads", "not sealed", "deleted meanwhile", "topic")


@click.command()
@click.argument("topics", nargs=-1, metavar="[TOPIC]...")
@click.option("--all", "everything", is_flag=True, help="All topics of the broker that store messages.")
@maintenance_options
def audit(*, topics: tuple[str, ...], everything: bool, work: Maintenance, output: str) -> None:
    """Read all history of topics, in parallel: offsets without a gap, checksums, counts and sizes.

    Each segment: checksum of the file against the catalogue, of every page, offsets, times, counts, payload bytes; then
    the order of segments, and what is not sealed yet. Exit status 1 says that something is not as it was written; every
    finding names its file, and row group and column where that can be told.
    """
    if bool(topics) == everything:
        raise click.UsageError("name topics, or say --all")
    with work.running("audit") as (target, watch):
        from pydanube.spark.maintenance.auditing import audit as examine  # noqa: PLC0415 - loads Spark

        names = [full_name(topic) for topic in topics] if topics else _all_topics(work)
        report = examine(target, names, watch)
    rows = [
        (
            f"{each.segments:,}",
            size_text(each.size),
            f"{each.messages:,}",
            size_text(each.payload_bytes),
            f"{each.unsealed:,}",
            f"{each.gone:,}",
            each.topic,
        )
        for each in report.topics
    ]
    findings = [f"{each.topic}: {each.place}: {each.what}" for each in report.findings]
    if report.findings_left_out:
        findings.append(f"and {report.findings_left_out:,} more")
    title = f"{len(report.topics):,} topics and partitions, {len(report.findings):,} findings"
    show_rows(title, _COLUMNS, rows, msgspec.to_builtins(report), output)
    end(findings)


def _all_topics(work: Maintenance) -> list[str]:
    async def namespaces() -> list[str]:
        async with work.admin_port.connect() as admin:
            answer = await admin.call(
                "danube_admin.BrokerAdmin/ListNamespaces", pb.Empty(), pb.NamespaceListResponse
            )
            return list(answer.namespaces)

    found = run_admin(namespaces())
    with work.connection.client() as client:
        return [topic for namespace in found for topic in client.history.topics(namespace)]
