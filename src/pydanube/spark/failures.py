"""Spark's errors in one sentence: they come with plans, stack traces of two languages and the statement itself."""

import re
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, PythonException

from pydanube.kernel.errors import DanubeError

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What a Spark job raises, unless it is one of our own errors."""

_CONDITION: Final = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: \w{5}")
_POSITION: Final = re.compile(
    r"\(?\bline (?P<line>\d+),? pos (?P<before>\d+)\)?|\(line (?P<of>\d+), position (?P<at>\d+)\)"
)
_OWN: Final = re.compile(r"pydanube\.(?:\w+\.)*\w+: (.+)")
_CAUSE: Final = re.compile(r"^(?:Caused by: |: )?[\w.$]+(?:Exception|Error): (.+)", re.MULTILINE)


def sentence(error: BaseException) -> str:
    """What went wrong, and where in the statement; `str(error)` has the whole story."""
    if isinstance(error, DanubeError):
        return error.text
    if isinstance(error, Py4JNetworkError):
        return "Spark has ended: its log says why"
    text = str(error).strip()
    # An error of ours, raised where the job ran, says best what is wrong.
    if own := _OWN.findall(text):
        return str(own[-1]).strip()
    if isinstance(error, PythonException):
        return text.splitlines()[-1].strip()
    if isinstance(error, Py4JJavaError):
        causes = _CAUSE.findall(text)
        return str(causes[-1] if causes else text.splitlines()[0])
    # Behind the first line come advice, the plan or the statement once more.
    words = _POSITION.sub(
        "", _STATE.sub("", _CONDITION.sub("", text.splitlines()[0] if text else repr(error)))
    )
    return " ".join(words.split()).rstrip(" .;") + _where(text)


def _where(text: str) -> str:
    found = _POSITION.search(text)
    if found is None:
        return ""
    if found["line"] is None:
        return f" (line {found['of']}, column {found['at']})"
    # Here Spark counts from 0.
    return f" (line {found['line']}, column {int(found['before']) + 1})"
