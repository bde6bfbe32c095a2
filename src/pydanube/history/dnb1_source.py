"""The files a Danube broker has of one topic: which there are, and which offsets lie where in them.

Such a broker leaves files that are not what they should be: numbering begins at 0 again after a restart, frames
are appended behind a torn one, publishers at the same time leave frames out of order, the same file is stored again
and again under new names. So nothing is believed of names and checkpoint but the order of the files, and every frame
is looked at before the first message is taken.
"""

import re
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from pydanube.kernel.errors import Corrupt, DanubeError, ErrorCode, Rejected, Unavailable
from pydanube.protocol.dnb1 import CHECKPOINT_BYTES_MAX, DamagedFrame, Frame, FrameDecoder, decode_checkpoint

PIECE_BYTES: Final = 1 << 20
STRETCHES_MAX: Final = 1_000_000
"""Breaks in the numbering that are remembered: a real source has hundreds."""
DAMAGES_MAX: Final = 10_000

_LOG: Final = re.compile(r"wal(?:\.(\d{1,18}))?\.log")
_SEGMENT: Final = re.compile(r"data-(\d{1,20})-(\d{1,20})\.dnb1")
_SEGMENT_SUFFIX: Final = ".dnb1"
_CHECKPOINT: Final = "wal.ckpt"
_SEGMENT_FOLDERS: Final = ("", "segments", "objects")


Progress = Callable[[int], None]
"""Called with the bytes done since the last call."""


class Damage(NamedTuple):
    """Bytes that are no frame, with whole frames behind them."""

    position: int
    size: int
    why: str


class Stretch(NamedTuple):
    """Frames of one file that follow each other, every offset one above the last."""

    path: Path
    position: int
    end: int
    """The byte behind the last frame."""
    first: int
    last: int
    after_damage: bool
    before_damage: bool
    """Bytes that are no frame come next, in the middle of the file or at its torn end."""

    @property
    def messages(self) -> int:
        return self.last - self.first + 1


class SourceFile(NamedTuple):
    path: Path
    size: int
    stretches: tuple[Stretch, ...]
    damages: tuple[Damage, ...]
    torn_bytes: int
    """What is left at the end when the last whole frame is taken."""
    digest: bytes

    @property
    def is_log(self) -> bool:
        return self.path.suffix != _SEGMENT_SUFFIX


def find_files(directory: Path) -> list[Path]:
    """The topic's segments by their offsets, then its log files in the order they were written.

    Raises:
        Rejected: there are none.
    """
    try:
        segments = [
            path
            for folder in _SEGMENT_FOLDERS
            for path in (directory / folder).glob(f"*{_SEGMENT_SUFFIX}")
            if path.is_file()
        ]
        logs = _log_files(directory)
    except OSError as error:
        raise unreadable(directory, error) from error
    if not segments and not logs:
        raise Rejected(
            f"{directory} holds no file of a Danube topic: give the folder that has wal.log, or *.dnb1 files, or a "
            f"folder segments or objects of them"
        )
    return sorted(segments, key=_segment_order) + logs


def survey_file(path: Path, on_progress: Progress | None = None) -> SourceFile:
    """Look at every frame of a file; its messages are not decoded.

    Raises:
        Corrupt: it is not made of frames at all, or has more breaks than can be made sense of.
        Unavailable: it cannot be read.
    """
    survey = _Survey(path)
    try:
        with path.open("rb", buffering=0) as file:
            while piece := file.read(PIECE_BYTES):
                survey.receive(piece)
                if on_progress:
                    on_progress(len(piece))
    except OSError as error:
        raise unreadable(path, error) from error
    return survey.finish()


def read_stretch(stretch: Stretch) -> Iterator[Frame]:
    """The frames of a stretch, read anew.

    Raises:
        Corrupt: the file has changed since the survey.
        Unavailable: it cannot be read.
    """
    decoder = FrameDecoder(position=stretch.position)
    left = stretch.end - stretch.position
    expected = stretch.first
    try:
        with stretch.path.open("rb", buffering=0) as file:
            file.seek(stretch.position)
            while left and (piece := file.read(min(PIECE_BYTES, left))):
                left -= len(piece)
                decoder.receive(piece)
                while (frame := decoder.next_frame()) is not None and frame.offset == expected:
                    yield frame
                    expected += 1
    except OSError as error:
        raise unreadable(stretch.path, error) from error
    except DamagedFrame as error:
        raise in_file(stretch.path, error) from error
    if expected != stretch.last + 1:
        raise Corrupt(
            f"{stretch.path} changed while it was read: stop the broker or copy its files first",
            ErrorCode.SEGMENT_CORRUPT,
        )


def in_file(path: Path, error: DamagedFrame) -> Corrupt:
    return Corrupt(f"{path}: {error.text}", error.code)


def unreadable(path: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"{path} cannot be read: {error.strerror or error}; check the disk and the permissions",
        ErrorCode.STORAGE_FAILED,
    )


class _Survey:
    """What one file holds, found out piece by piece."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = FrameDecoder()
        self._digest = blake2b(digest_size=32)
        self._size = 0
        self._stretches: list[Stretch] = []
        self._damages: list[Damage] = []
        self._damage: tuple[int, str] | None = None
        """Where damage began whose end is not found yet, and what was wrong."""
        # The stretch that grows:
        self._position = self._end = 0
        self._first = self._next = 0
        self._after_damage = False

    def receive(self, piece: bytes) -> None:
        self._size += len(piece)
        self._digest.update(piece)
        self._decoder.receive(piece)
        self._take_frames(at_end=False)

    def finish(self) -> SourceFile:
        self._take_frames(at_end=True)
        is_cut = self._decoder.held_bytes > 0 and self._damage is None
        if is_cut:
            # Those brokers go on writing behind a torn frame, so whole ones may still follow.
            self._damaged(self._decoder.position, "the file ends inside it")
            self._take_frames(at_end=True)
        self._close_stretch()
        if self._size and not self._stretches and not is_cut:
            raise Corrupt(
                f"{self._path} has {self._size} bytes and not one frame of a Danube broker in them: it is damaged from "
                "its first byte, or something else",
                ErrorCode.SEGMENT_CORRUPT,
            )
        torn = 0 if self._damage is None else self._size - self._damage[0]
        return SourceFile(
            self._path,
            self._size,
            tuple(self._stretches),
            tuple(self._damages),
            torn,
            self._digest.digest(),
        )

    def _take_frames(self, *, at_end: bool) -> None:
        decoder = self._decoder
        while True:
            if self._damage is not None:
                if not decoder.skip_damage(at_end=at_end):
                    return
                self._end_damage()
            try:
                frame = decoder.next_frame()
            except DamagedFrame as error:
                self._damaged(error.position, error.why)
                continue
            if frame is None:
                return
            if frame.offset != self._next or self._end == self._position:
                self._close_stretch()
                self._position, self._first = frame.position, frame.offset
            self._next = frame.offset + 1
            self._end = decoder.position

    def _damaged(self, position: int, why: str) -> None:
        self._damage = (position, why)
        self._close_stretch()

    def _end_damage(self) -> None:
        assert self._damage is not None
        position, why = self._damage
        self._damages.append(Damage(position, self._decoder.position - position, why))
        self._damage = None
        self._after_damage = True
        if len(self._damages) > DAMAGES_MAX:
            raise Corrupt(
                f"{self._path} is damaged in more than {DAMAGES_MAX} places, the first at byte "
                f"{self._damages[0].position}: restore it from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            )

    def _close_stretch(self) -> None:
        if self._end == self._position:
            return
        is_before_damage = self._damage is not None
        self._stretches.append(
            Stretch(
                self._path,
                self._position,
                self._end,
                self._first,
                self._next - 1,
                self._after_damage,
                is_before_damage,
            )
        )
        self._position = self._end
        self._after_damage = False
        if len(self._stretches) > STRETCHES_MAX:
            raise Corrupt(
                f"the offsets in {self._path} break off more than {STRETCHES_MAX} times: this cannot be put in order",
                ErrorCode.SEGMENT_CORRUPT,
            )


def _log_files(directory: Path) -> list[Path]:
    numbered: dict[str, int] = {}
    for path in directory.iterdir():
        match = _LOG.fullmatch(path.name)
        if match is not None and path.is_file():
            numbered[path.name] = int(match[1] or 0)
    for name, sequence in _checkpointed(directory).items():
        if (directory / name).is_file():
            numbered.setdefault(name, sequence)
    return [directory / name for name in sorted(numbered, key=lambda name: (numbered[name], name))]


def _checkpointed(directory: Path) -> dict[str, int]:
    """Log files the checkpoint names, which may be configured to have other names than ours; none if it is damaged."""
    path = directory / _CHECKPOINT
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        data = file.read(CHECKPOINT_BYTES_MAX + 1)
    try:
        checkpoint = decode_checkpoint(data)
    except DanubeError:
        return {}
    # Paths are those of the machine it was written on: only the names mean something here.
    names = {Path(rotated.path).name: rotated.sequence for rotated in checkpoint.rotated_files}
    names[Path(checkpoint.file_path).name] = checkpoint.file_sequence
    return {name: sequence for name, sequence in names.items() if name and "\0" not in name}


def _segment_order(path: Path) -> tuple[bool, int, int, str]:
    match = _SEGMENT.fullmatch(path.name)
    if match is None:
        return True, 0, 0, path.name
    return False, int(match[1]), int(match[2]), path.name
