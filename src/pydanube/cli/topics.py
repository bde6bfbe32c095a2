"""`danube topics`: what a broker serves. Other modules add their commands to this group."""

import click

from pydanube.cli.admin_connection import AdminConnection, administrative
from pydanube.cli.segment_documents import segment_document, show_segments
from pydanube.cli.storage_admin import StorageAdmin
from pydanube.cli.tables import age_text, show_document, show_facts, size_text


@click.group()
def topics() -> None:
    """Look at topics and their storage."""


@topics.command()
@click.argument("topic")
@administrative
async def seal(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Put everything published to TOPIC so far into the durable store.

    Waits until it is there. Sealing happens by itself when enough has come or enough time has passed; this is for those
    who want to read the segments now, or to move the topic.
    """
    answer = await StorageAdmin(admin).seal(topic)
    if output != "table":
        segments = [segment_document(each) for each in answer.segments]
        show_document({"topic": topic, "next_offset": answer.next_offset, "segments": segments}, output)
        return
    if answer.segments:
        show_segments(f"New segments of {topic}", answer.segments, output)
    click.secho(f"{topic} is sealed up to offset {answer.next_offset}", fg="green", err=True)


@topics.command()
@click.argument("topic")
@administrative
async def describe(admin: AdminConnection, *, topic: str, output: str) -> None:
    """Show how TOPIC is stored: offsets, segments, and what waits for the durable store."""
    facts = await StorageAdmin(admin).describe(topic)
    waiting = "nothing"
    if facts.waiting_bytes:
        waiting = f"{size_text(facts.waiting_bytes)}, the oldest for {age_text(facts.lag_seconds)}"
    lines = [
        ("storage", facts.mode),
        ("fsync", facts.fsync),
        ("oldest offset", f"{facts.start_offset:,}"),
        ("next offset", f"{facts.next_offset:,}"),
        ("sealed up to", f"{facts.sealed_end:,}"),
        ("segments", f"{facts.segment_count:,} of {size_text(facts.segment_bytes)}"),
        ("local runs", f"{facts.run_count:,} of {size_text(facts.run_bytes)}"),
        ("waiting", waiting),
        ("failures", f"{facts.failures:,} in a row" if facts.failures else "none"),
        ("last error", facts.last_error or "none"),
    ]
    document = {each.name: getattr(facts, each.name) for each in facts.DESCRIPTOR.fields}
    show_facts(f"Topic {facts.topic}", lines, document, output)
