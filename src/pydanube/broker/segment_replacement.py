"""Segments of a topic replaced by others that a client made of them: begin, send files in parts, finish."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from pydanube.broker.incoming_files import IncomingFiles, Senders
from pydanube.history.catalogue import REPLACED_AT_ONCE_MAX
from pydanube.history.convert_job import CheckJob
from pydanube.history.converter import Converter
from pydanube.history.places import Places
from pydanube.history.replacement import REPLACED_KEPT_MS, check_replacement
from pydanube.history.segment import SegmentDescriptor, segment_key
from pydanube.history.tiering import Tiering
from pydanube.history.topic_history import TopicHistory
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.kernel.names import TopicName

logger = logging.getLogger("pydanube.broker")

REPLACEMENTS_MAX: Final = 16
REASON_CHARS_MAX: Final = 200


@dataclass(slots=True, kw_only=True)
class _Replacement(IncomingFiles):
    history: TopicHistory
    old: list[SegmentDescriptor]
    reason: str
    is_finishing: bool = False


class SegmentReplacement:
    """One per broker. Two replacements never name the same segment: the later one ends the earlier."""

    def __init__(
        self,
        tiering: Tiering,
        places: Places,
        converter: Converter,
        *,
        clock: Clock,
        dice: Dice,
        spool: Path,
        on_replaced: Callable[[TopicHistory], None],
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        """`on_replaced` is told the history of each topic whose messages may be others than those in memory."""
        self._tiering = tiering
        self._places = places
        self._converter = converter
        self._clock = clock
        self._dice = dice
        self._spool = spool
        self._on_replaced = on_replaced
        self._on_step = on_step
        self._senders: Senders[_Replacement] = Senders(
            "replacement", at_once_max=REPLACEMENTS_MAX, clock=clock
        )

    async def begin(self, history: TopicHistory, segment_ids: Sequence[str], reason: str) -> int:
        """The number of a replacement of these segments, which follow each other.

        Raises:
            Rejected: they are not neighbours, or not segments of the topic.
            Conflict: one of them is being replaced at this moment.
        """
        old = _neighbours(history, segment_ids)
        if len(reason) > REASON_CHARS_MAX:
            raise Rejected(f"a reason of {len(reason)} characters: {REASON_CHARS_MAX} at most")
        for number, other in self._senders.items():
            if other.history is history and any(segment in other.old for segment in old):
                if other.is_finishing:
                    raise Conflict(
                        f"a segment from {old[0].segment_id} on is being replaced at this moment: list the segments "
                        "and begin again",
                        ErrorCode.VERSION_MISMATCH,
                    )
                # Whoever began it is gone, or will hear of it with the next part.
                await self._senders.remove(number)
        number = self._dice.new_id()
        files = _Replacement(
            topic=history.topic,
            directory=self._spool / f"replacement-{number}",
            touched_ms=self._clock.monotonic_ms(),
            history=history,
            old=old,
            reason=reason,
        )
        await self._senders.add(number, files)
        return number

    async def take_part(
        self, number: int, topic: TopicName, file_number: int, position: int, data: bytes
    ) -> None:
        """Append to a file; `position` is how much of it was sent before."""
        await self._sender(number, topic).append(file_number, position, data)

    async def finish(self, number: int, topic: TopicName) -> list[SegmentDescriptor]:
        """Check the files and let them take the place of the old segments; return the new ones.

        Raises:
            Corrupt: a file is damaged.
            Rejected: the files do not hold the same offsets, or could not be those messages.
            Conflict: the old segments are not there any more.
        """
        files = self._sender(number, topic)
        if files.is_finishing:
            raise Conflict(f"replacement {number} is being finished already", ErrorCode.VERSION_MISMATCH)
        files.is_finishing = True
        # Whoever stops waiting must not leave it half done.
        finishing = asyncio.get_running_loop().create_task(self._finish(number, files))
        return await asyncio.shield(finishing)

    async def abandon(self, number: int, topic: TopicName) -> None:
        if not self._sender(number, topic).is_finishing:
            await self._senders.remove(number)

    async def _finish(self, number: int, files: _Replacement) -> list[SegmentDescriptor]:
        try:
            new = await self._check(files)
            await self._tiering.claim()
            keys = [segment_key(files.topic, segment.segment_id) for segment in new]
            with self._tiering.spared(keys):
                try:
                    new = await self._upload(keys, new, files.paths)
                    await self._swap(files, new)
                except (Conflict, Rejected):
                    # These say that nothing has changed; after any other error the sweep finds out.
                    await self._remove(keys)
                    raise
        finally:
            await self._senders.remove(number)
        logger.info(
            "segments replaced topic=%s from=%d to=%d old=%d new=%d reason=%s",
            files.topic,
            new[0].start_offset,
            new[-1].end_offset,
            len(files.old),
            len(new),
            files.reason,
        )
        return new

    async def _check(self, files: _Replacement) -> list[SegmentDescriptor]:
        if len(files.paths) > REPLACED_AT_ONCE_MAX:
            raise Rejected(
                f"{len(files.paths)} files: {REPLACED_AT_ONCE_MAX} at most replace segments at once"
            )
        found = await self._converter.check(
            CheckJob(
                topic=str(files.topic),
                topic_id=files.history.topic_id,
                files=tuple(map(str, files.paths)),
                created_ms=self._clock.now_ms(),
            )
        )
        check_replacement(files.old, found)
        self._on_step("replacement_checked")
        return list(found)

    async def _upload(
        self, keys: list[str], new: list[SegmentDescriptor], paths: list[Path]
    ) -> list[SegmentDescriptor]:
        tagged: list[SegmentDescriptor] = []
        for key, segment, path in zip(keys, new, paths, strict=True):
            etag = await self._places.store.put_file(key, path)
            tagged.append(msgspec.structs.replace(segment, etag=etag))
            self._on_step("replacement_uploaded")
        return tagged

    async def _swap(self, files: _Replacement, new: list[SegmentDescriptor]) -> None:
        history = files.history
        async with history.change:
            await history.replace_segments(
                files.old,
                new,
                remove_at_ms=self._clock.now_ms() + REPLACED_KEPT_MS,
                reason=files.reason,
            )
            self._on_step("replacement_described")
        self._on_replaced(history)

    async def _remove(self, keys: list[str]) -> None:
        """What did not become segments; what cannot be removed now is left to the sweep."""
        with suppress(DanubeError):
            for key in keys:
                await self._places.store.delete(key)

    def _sender(self, number: int, topic: TopicName) -> _Replacement:
        files = self._senders.get(number)
        if files.topic != topic:
            raise Rejected(f"replacement {number} is one of topic {files.topic}, not of {topic}")
        return files


def _neighbours(history: TopicHistory, segment_ids: Sequence[str]) -> list[SegmentDescriptor]:
    if not 0 < len(segment_ids) <= REPLACED_AT_ONCE_MAX:
        raise Rejected(f"{len(segment_ids)} segments to replace: 1 to {REPLACED_AT_ONCE_MAX} at once")
    names = [segment.segment_id for segment in history.segments]
    try:
        first = names.index(segment_ids[0])
    except ValueError:
        raise Conflict(
            f"topic {history.topic} has no segment {segment_ids[0]}: list its segments again",
            ErrorCode.VERSION_MISMATCH,
        ) from None
    if names[first : first + len(segment_ids)] != list(segment_ids):
        raise Conflict(
            f"the segments from {segment_ids[0]} to {segment_ids[-1]} of topic {history.topic} do not follow each other: "
            "list its segments again and name neighbours, oldest first",
            ErrorCode.VERSION_MISMATCH,
        )
    return history.segments[first : first + len(segment_ids)]
