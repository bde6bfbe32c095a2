"""`danube import`: the history of a topic from elsewhere becomes a topic here."""

import asyncio
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click

from pydanube.cli.admin_connection import AdminPort, admin_options, run_admin
from pydanube.cli.progress import Advance, transfer_bar
from pydanube.cli.storage_admin import StorageAdmin
from pydanube.cli.tables import output_option, show_facts, size_text
from pydanube.kernel.errors import DanubeError, OutcomeUnknown, Rejected, Unavailable
from pydanube.kernel.names import TopicName

if TYPE_CHECKING:
    from pydanube.history.dnb1_import import ImportReport
    from pydanube.protocol.storage_admin_pb2 import FinishImportResponse

FINISH_PAUSES_SECONDS: Final = (1.0, 2.0, 4.0, 8.0)
"""Between attempts to finish while the durable store does not answer."""


@click.command("import")
@click.option(
    "--dnb1",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    required=True,
    help="Folder of a Danube broker: a topic's WAL (wal.log, …) or its segments (*.dnb1).",
)
@click.option("--topic", required=True, help="Topic to make; it must not exist.")
@click.option("--reorder", is_flag=True, help="Sort messages that are out of order; they keep their offsets.")
@click.option(
    "--renumber",
    is_flag=True,
    help="Give new offsets, in the order of the files, where the old ones cannot stay.",
)
@click.option(
    "--skip-damaged", is_flag=True, help="Leave out damaged messages; those behind them close ranks."
)
@click.option(
    "--temp-dir",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where segments are made before they are sent; about as much room as the files take.  [default: the system's]",
)
@admin_options
@output_option
def import_history(
    *,
    folder: Path,
    topic: str,
    reorder: bool,
    renumber: bool,
    skip_damaged: bool,
    temp_dir: Path | None,
    admin_port: AdminPort,
    output: str,
) -> None:
    """Make a topic of the files of a Danube broker: messages, offsets and attributes as they were.

    Everything is checked before anything is sent, and the topic appears when all of it is stored: a failed import leaves
    nothing behind and can be repeated.
    """
    try:
        name = TopicName.parse("/" + topic.removeprefix("/"))
    except Rejected as error:
        raise click.BadParameter(error.text, param_hint="--topic") from error
    if reorder and renumber:
        raise click.UsageError(
            "--reorder keeps every offset and --renumber gives new ones: choose one of them"
        )

    async def work() -> tuple["ImportReport", "FinishImportResponse"]:
        allowed = {"reorder": reorder, "renumber": renumber, "skip_damaged": skip_damaged}
        convert = partial(_convert, folder=folder, topic=name, allowed=allowed)
        async with admin_port.connect() as connection:
            admin = StorageAdmin(connection)
            # First of all, for it says at once whether there is a broker that takes the topic.
            topic_id = await admin.begin_import(str(name))
            try:
                with TemporaryDirectory(prefix="danube-import-", dir=temp_dir) as spool:
                    report = await convert(Path(spool), topic_id)
                    return report, await _send(admin, topic_id, report, Path(spool))
            except OutcomeUnknown:
                raise
            except BaseException:
                with suppress(DanubeError):
                    await admin.abandon_import(topic_id)
                raise

    report, outcome = run_admin(work())
    _show(name, report, outcome, output)


async def _convert(
    spool: Path, topic_id: int, *, folder: Path, topic: TopicName, allowed: dict[str, bool]
) -> "ImportReport":
    """Make segment files in a thread, which is told to end when the command is cancelled."""
    from pydanube.history.dnb1_import import import_dnb1  # noqa: PLC0415 - brings Arrow
    from pydanube.history.dnb1_source import find_files  # noqa: PLC0415

    stopping = threading.Event()
    files = await asyncio.to_thread(find_files, folder)
    # Every file is read twice: once to see whether all is well, once to take its messages.
    with transfer_bar("read", 2 * sum(file.stat().st_size for file in files)) as advance:
        work = partial(
            import_dnb1,
            folder,
            spool,
            topic=topic,
            topic_id=topic_id,
            created_ms=int(time.time() * 1000),
            **allowed,
            on_progress=_stoppable(advance, stopping),
        )
        making = asyncio.create_task(asyncio.to_thread(work))
        try:
            return await asyncio.shield(making)
        except DanubeError as error:
            raise _with_options(error) from error
        except asyncio.CancelledError:
            # The thread has to be gone before the folder it writes to.
            stopping.set()
            await asyncio.gather(making, return_exceptions=True)
            raise


class _Stopped(Exception):
    """Nobody waits for the import any more."""


def _stoppable(advance: Advance, stopping: threading.Event) -> Callable[[int], None]:
    def step(size: int) -> None:
        if stopping.is_set():
            raise _Stopped
        advance(size)

    return step


def _with_options(error: DanubeError) -> DanubeError:
    """The same error, with what the importer may be allowed as this command spells it."""
    text = re.sub(r"\((reorder|renumber|skip_damaged)\)", _as_option, error.text)
    return type(error)(text, error.code) if text != error.text else error


def _as_option(word: re.Match[str]) -> str:
    return f"(--{word[1].replace('_', '-')})"


async def _send(
    admin: StorageAdmin, topic_id: int, report: "ImportReport", spool: Path
) -> "FinishImportResponse":
    with transfer_bar("send", sum(segment.size for segment in report.segments)) as advance:
        for number, segment in enumerate(report.segments):
            await admin.upload(topic_id, number, spool / segment.segment_id, advance)
    reason = ""
    for pause in (*FINISH_PAUSES_SECONDS, 0.0):
        try:
            return await admin.finish_import(topic_id)
        except Unavailable as error:
            reason = error.text
            await asyncio.sleep(pause)
        except Rejected as error:
            if not reason:
                raise
            # An answer that was lost may have said that the topic is made, and then there is no import any more.
            reason = error.text
            break
    raise OutcomeUnknown(
        f"the files were sent, but whether the topic was made is not known ({reason}): "
        "look by `danube topics describe` before importing again"
    )


def _show(topic: TopicName, report: "ImportReport", outcome: "FinishImportResponse", output: str) -> None:
    document: dict[str, Any] = {
        "topic": str(topic),
        "source_topic": report.source_topic,
        "start_offset": outcome.start_offset,
        "next_offset": outcome.next_offset,
        "messages": report.messages,
        "payload_bytes": report.payload_bytes,
        "files": len(report.files),
        "identical_files": len(report.identical_files),
        "segments": outcome.segments,
        "kept": report.kept,
        "renumbered": report.renumbered,
        "out_of_order": sum(stretch.messages for stretch in report.out_of_order),
        "duplicates": report.duplicates,
        "renamed_attributes": report.renamed_attributes,
        "skipped_messages": report.skipped_messages,
        "skipped_bytes": report.skipped_bytes,
        "torn_bytes": report.torn_bytes,
    }
    lines = [
        ("from", f"{report.source_topic} ({len(report.files):,} files)"),
        ("messages", f"{report.messages:,} of {size_text(report.payload_bytes)}"),
        ("offsets", f"{outcome.start_offset:,} to {outcome.next_offset - 1:,}"),
        ("kept offsets", f"{report.kept:,}"),
        ("new offsets", f"{report.renumbered:,}"),
        ("out of order", f"{document['out_of_order']:,}"),
        ("left out", _left_out(report)),
        ("segments", f"{outcome.segments:,}"),
    ]
    if report.renamed_attributes:
        lines.append(
            ("renamed", f"{report.renamed_attributes:,} attributes that would delay or expire messages here")
        )
    show_facts(f"Imported {topic}", lines, document, output)


def _left_out(report: "ImportReport") -> str:
    parts = [
        (report.duplicates, f"{report.duplicates:,} duplicates"),
        (report.skipped_messages, f"{report.skipped_messages:,} messages that cannot be read"),
        (report.skipped_bytes, f"{size_text(report.skipped_bytes)} of damage"),
        (report.torn_bytes, f"{size_text(report.torn_bytes)} torn off at the ends of files"),
    ]
    return ", ".join(text for count, text in parts if count) or "nothing"
