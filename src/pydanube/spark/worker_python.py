"""The Python that Spark starts for its workers on this machine, without Spark's archives of itself on the path.

Spark puts `pyspark.zip` and a jar before everything else on the path of its workers. A Spark that pip installed needs
neither, and pays for them: modules of an archive are compiled at each start (1.2 instead of 0.3 s of CPU), and its
directory is read anew, once for each package in it, before every task and every step of planning (0.24 s of CPU instead
of 0.05 on Python 3.11).
"""

import os
import shlex
import stat
import sys
from pathlib import Path

import pyspark

_SCRIPT = """\
#!/bin/sh
kept=
IFS=:
for each in $PYTHONPATH; do
    case "$each" in
        {home}/*.zip | {home}/*.jar) ;;
        *) kept="${{kept:+$kept:}}$each" ;;
    esac
done
PYTHONPATH="$kept" exec {python} "$@"
"""


def worker_python(spark_home: Path, scratch: Path) -> str:
    """This Python for Spark's workers; through a script of ours in `scratch` if PySpark is installed beside it."""
    if os.name != "posix" or Path(pyspark.__file__).resolve().parent != spark_home.resolve():
        return sys.executable
    script = scratch / "python"
    home, python = (shlex.quote(str(path)) for path in (spark_home, sys.executable))
    script.write_text(_SCRIPT.format(home=home, python=python))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)
