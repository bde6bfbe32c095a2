"""`danube segments`: the sealed history of a topic, listed, verified and taken out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pydanube.cli.admin_connection import AdminConnection, AdminPort, admin_options, administrative, run_admin
from pydanube.cli.progress import transfer_bar
from pydanube.cli.segment_documents import show_segments
from pydanube.cli.storage_admin import StorageAdmin
from pydanube.cli.tables import output_option, show_facts, show_rows, size_text

if TYPE_CHECKING:
    from pydanube.cli.segment_sources import Source
    from pydanube.history.export import Exported

Command = Callable[..., Any]


@click.group()
def segments() -> None:
    """List, verify and export the sealed history of a topic."""


def source_options(command: Command) -> Command:
    """TOPIC of a broker, or `--dir`: what a command works on."""
    command = click.option(
        "--dir",
        "folder",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Work on the *.parquet files of this folder, without a broker.",
    )(command)
    command = admin_options(command)
    return click.argument("topic", required=False)(command)


@segments.command("list")
@click.argument("topic")
@click.option(
    "--from-offset",
    type=click.IntRange(min=0),
    default=0,
    help="Leave out segments that end before this offset.",
)
@administrative
async def list_segments(admin: AdminConnection, *, topic: str, from_offset: int, output: str) -> None:
    """List the segments of TOPIC, oldest first."""
    found = await StorageAdmin(admin).segments(topic, from_offset)
    show_segments(f"Segments of {topic}", found, output)


@segments.command()
@source_options
@output_option
def verify(*, output: str, **where: Any) -> None:
    """Read every segment of TOPIC, or of a folder, and compare it with what was written.

    Checksums of files and pages, the columns, the count and order of offsets, and that no segment is missing between
    two others. Exit status 1 says that something is damaged; 3 that it could not be read.
    """

    _check_source(**where)

    async def work() -> bool:
        from pydanube.cli.segment_audit import audit  # noqa: PLC0415 - brings Arrow

        async with _opened(**where) as source:
            with transfer_bar("verify", sum(piece.size for piece in source.pieces)) as advance:
                found = await audit(source, advance)
        lines = [
            ("segments", f"{found.segments:,} of {size_text(found.size)}"),
            ("messages", f"{found.messages:,}"),
            ("damages", f"{len(found.damages):,}" if found.damages else "none"),
        ]
        if found.deleted_meanwhile:
            lines.append(
                ("deleted", f"{found.deleted_meanwhile:,} segments, by retention, before they were read")
            )
        show_facts("Verified", lines, found.document(), output)
        for damage in found.damages:
            click.secho(f"Error: {damage.place}: {damage.what}", fg="red", err=True)
        return not found.damages

    if not run_admin(work()):
        raise SystemExit(1)


@segments.command()
@source_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["dnb1", "parquet", "jsonl"]),
    required=True,
    help="Form of the files.",
)
@click.option(
    "--to",
    "target",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Folder for the files; made if it does not exist.",
)
@click.option("--from-offset", type=click.IntRange(min=0), default=0, help="First offset to export.")
@click.option("--to-offset", type=click.IntRange(min=0), help="Last offset to export.")
@output_option
def export(
    *, form: str, target: Path, from_offset: int, to_offset: int | None, output: str, **where: Any
) -> None:
    """Write the sealed messages of TOPIC, or of a folder, into files: one for each segment.

    dnb1 are frames as a Danube broker keeps them; parquet are segments again; jsonl has one message a line. What is not
    sealed yet is not exported: `danube topics seal TOPIC` comes first.
    """
    _check_source(**where)
    if to_offset is not None and to_offset < from_offset:
        raise click.UsageError(f"--to-offset {to_offset} is before --from-offset {from_offset}")

    def overlaps(first: int, last: int) -> bool:
        return last >= from_offset and (to_offset is None or first <= to_offset)

    async def work() -> "list[Exported]":
        from pydanube.cli.isolation import Isolation  # noqa: PLC0415
        from pydanube.history.export import export_segment  # noqa: PLC0415 - brings Arrow
        from pydanube.history.segment_file import read_facts  # noqa: PLC0415

        done: list[Exported] = []
        write = partial(
            export_segment, folder=target, form=form, from_offset=from_offset, to_offset=to_offset
        )
        async with _opened(**where, from_offset=from_offset) as source, Isolation() as isolation:
            await asyncio.to_thread(target.mkdir, parents=True, exist_ok=True)
            pieces = [
                piece
                for piece in source.pieces
                if piece.expected is None or overlaps(piece.expected.start_offset, piece.expected.end_offset)
            ]
            with transfer_bar("export", sum(piece.size for piece in pieces)) as advance:
                for piece in pieces:
                    async with source.file(piece, advance) as file:
                        segment = piece.expected
                        if segment is None:
                            segment = await isolation.run(read_facts, file)
                        if overlaps(segment.start_offset, segment.end_offset):
                            done.append(await asyncio.to_thread(write, file, segment))
            _warn_of_unsealed(source.unsealed, from_offset, to_offset)
        return done

    exported = run_admin(work())
    rows = [
        (f"{each.first_offset:,}", f"{each.last_offset:,}", size_text(each.size), str(each.path))
        for each in exported
    ]
    document = [
        {
            "file": str(each.path),
            "first_offset": each.first_offset,
            "last_offset": each.last_offset,
            "messages": each.messages,
            "size": each.size,
        }
        for each in exported
    ]
    columns = ("first offset", "last offset", "size", "file")
    show_rows(f"{sum(each.messages for each in exported):,} messages", columns, rows, document, output)


def _warn_of_unsealed(unsealed: range, from_offset: int, to_offset: int | None) -> None:
    last = unsealed.stop - 1 if to_offset is None else min(unsealed.stop - 1, to_offset)
    first = max(unsealed.start, from_offset)
    if first <= last:
        click.secho(
            f"Offsets {first} to {last} are not exported, for they are not sealed yet: `danube topics seal`, then "
            f"export with --from-offset {first}",
            fg="yellow",
            err=True,
        )


def _check_source(*, topic: str | None, folder: Path | None, **others: Any) -> None:
    if (topic is None) == (folder is None):
        raise click.UsageError("give either a TOPIC or a folder by --dir")


@asynccontextmanager
async def _opened(
    *, topic: str | None, folder: Path | None, admin_port: AdminPort, from_offset: int = 0
) -> "AsyncIterator[Source]":
    from pydanube.cli.segment_sources import FolderSource, TopicSource  # noqa: PLC0415 - brings msgspec

    if folder is not None:
        yield await asyncio.to_thread(FolderSource, folder)
        return
    assert topic is not None, "checked with the options"
    async with admin_port.connect() as admin:
        yield await TopicSource.open(StorageAdmin(admin), topic, from_offset)
