"""What the converter's process does for a job."""

import sys
from concurrent.futures import Executor

import msgspec
import pyarrow as pa

from pydanube.history.convert_job import CheckJob, ConvertAnswer, ConvertFailure, ConvertJob
from pydanube.history.segment_file import write_segment
from pydanube.history.segment_import import check_files
from pydanube.kernel.errors import DanubeError, ErrorCode

pa.set_cpu_count(1)
pa.set_io_thread_count(1)


def answered(line: bytes, patient: Executor) -> bytes:
    """The answer to a job, both as lines; what is not hurried is done by `patient`."""
    return msgspec.json.encode(_answer(line, patient)) + b"\n"


def _answer(line: bytes, patient: Executor) -> ConvertAnswer:
    try:
        job = msgspec.json.decode(line, type=ConvertJob | CheckJob)
        if isinstance(job, CheckJob):
            return ConvertAnswer(checked=patient.submit(check_files, job).result())
        if job.is_hurried:
            return ConvertAnswer(converted=write_segment(job))
        return ConvertAnswer(converted=patient.submit(write_segment, job).result())
    except DanubeError as error:
        return _failure(type(error).__name__, error.code, error.text)
    except Exception as error:
        # A bug, or memory that was not to be had. The next job may well be done.
        sys.excepthook(type(error), error, error.__traceback__)
        return _failure("DanubeError", ErrorCode.INTERNAL, f"the converter failed: {error!r}")


def _failure(kind: str, code: ErrorCode, text: str) -> ConvertAnswer:
    return ConvertAnswer(failure=ConvertFailure(kind=kind, code=code.number, text=text))
