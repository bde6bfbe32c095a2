"""Checking segments that were made elsewhere, before they become the history of a topic."""

import msgspec

from pydanube.history.convert_job import CheckJob
from pydanube.history.segment import SegmentDescriptor, segment_id
from pydanube.history.segment_file import topic_of, verify_segment
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected


def check_files(job: CheckJob) -> tuple[SegmentDescriptor, ...]:
    """Descriptors of the files, in their order, if together they are a topic's history without a gap.

    To be called in the converter's process: a file that was made to harm may end the process that reads it.

    Raises:
        Corrupt: a file is damaged.
        Rejected: a file is another topic's, or does not continue the one before.
    """
    if not job.files:
        raise Rejected("nothing to import: no file was sent", ErrorCode.ARGUMENT_INVALID)
    found: list[SegmentDescriptor] = []
    for number, file in enumerate(job.files):
        findings = verify_segment(file)
        descriptor = findings.descriptor
        if descriptor is None or not findings.is_good:
            raise Corrupt(
                f"file {number} of the import: {'; '.join(findings.problems)}", ErrorCode.SEGMENT_CORRUPT
            )
        if str(topic_of(file)) != job.topic or descriptor.topic_id != job.topic_id:
            raise Rejected(
                f"file {number} of the import was made for topic {topic_of(file)} with id {descriptor.topic_id}, not for "
                f"{job.topic} with id {job.topic_id}: make it again",
                ErrorCode.ARGUMENT_INVALID,
            )
        if found and descriptor.start_offset != found[-1].next_offset:
            raise Rejected(
                f"file {number} of the import begins at offset {descriptor.start_offset}, the one before ends with "
                f"{found[-1].end_offset}: send them in order and without a gap",
                ErrorCode.ARGUMENT_INVALID,
            )
        name = segment_id(job.topic_id, descriptor.start_offset, descriptor.end_offset, job.created_ms)
        found.append(msgspec.structs.replace(descriptor, segment_id=name, created_at=job.created_ms // 1000))
    return tuple(found)
