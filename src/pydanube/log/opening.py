"""Opening the journal's files: recover, cut a torn tail, begin the first file."""

import errno
import logging
import secrets
from dataclasses import dataclass
from pathlib import Path

from pydanube.entries.disk import Disk, write_all
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.log.files import JournalDirectory
from pydanube.log.group import FLAG_SNAPSHOT, encode_group
from pydanube.log.recovery import Progress, Recovery, recover

logger = logging.getLogger("pydanube.log")

_ZEROS = bytes(1 << 20)


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """The journal on disk, ready to be written to."""

    journal_id: int
    recovery: Recovery
    file_sequence: int
    fd: int
    position: int
    group_sequence: int


def open_files(
    directory: JournalDirectory, disk: Disk, *, expected_id: int | None, progress: Progress | None
) -> OpenedFiles:
    """Recover and make the directory writable. Runs in a worker thread.

    `expected_id` is the journal this broker is known to have used, None if it never had one.
    """
    try:
        recovery = recover(directory, disk, progress)
        _check_identity(directory.path, recovery, expected_id)
        return _make_writable(directory, disk, recovery)
    except OSError as error:
        code = ErrorCode.DISK_FULL if error.errno == errno.ENOSPC else ErrorCode.JOURNAL_STOPPED
        raise Unavailable(
            f"the journal in {directory.path} cannot be opened: {error.strerror or error}; repair that and start again",
            code,
        ) from error


def _make_writable(directory: JournalDirectory, disk: Disk, recovery: Recovery) -> OpenedFiles:
    for sequence in recovery.unbegun_files:
        directory.release(sequence)
    if recovery.journal_id is None:
        return _begin_journal(directory, disk, recovery)
    sequence = recovery.files[-1]
    fd = directory.reopen(sequence)
    if recovery.cut_bytes:
        logger.warning(
            "journal torn tail cut file=%s position=%d bytes=%d",
            directory.path_of(sequence),
            recovery.position,
            recovery.cut_bytes,
        )
        _overwrite_with_zeros(disk, fd, recovery.position, recovery.cut_bytes)
    # What was read may be in the page cache only; from here on it counts as durable.
    disk.fdatasync(fd)
    return OpenedFiles(
        recovery.journal_id, recovery, sequence, fd, recovery.position, recovery.group_sequence
    )


def _check_identity(path: Path, recovery: Recovery, expected_id: int | None) -> None:
    if expected_id is None:
        if recovery.topics:
            raise Corrupt(
                f"the journal in {path} holds {len(recovery.topics)} topics, but the metadata store does not know "
                "this journal: start with the metadata store that belongs to it, or move the directory away"
            )
    elif recovery.journal_id is None:
        raise Corrupt(
            f"the journal in {path} is missing or empty, but this broker has written journal {expected_id:016x}: "
            "restore the directory; starting without it would give old offsets to new messages"
        )
    elif recovery.journal_id != expected_id:
        raise Corrupt(
            f"{path} holds journal {recovery.journal_id:016x}, but this broker has written journal "
            f"{expected_id:016x}: the directory belongs to another broker"
        )


def _begin_journal(directory: JournalDirectory, disk: Disk, recovery: Recovery) -> OpenedFiles:
    journal_id = secrets.randbits(64)
    directory.prepare()
    fd = directory.begin(1)
    parts, size = encode_group(
        [],
        count=0,
        flags=FLAG_SNAPSHOT,
        journal_id=journal_id,
        file_sequence=1,
        group_sequence=1,
        synced_group=0,
        position=0,
    )
    write_all(disk, fd, parts, 0, sync=True)
    return OpenedFiles(journal_id, recovery, 1, fd, size, 2)


def _overwrite_with_zeros(disk: Disk, fd: int, position: int, size: int) -> None:
    end = position + size
    while position < end:
        piece = memoryview(_ZEROS)[: min(len(_ZEROS), end - position)]
        position = write_all(disk, fd, [piece], position, sync=False)
