"""The Python of Spark's workers: which archives it leaves out, and when it is the plain one."""

import os
import subprocess
import sys
from pathlib import Path

import pyspark

from pydanube.spark.worker_python import worker_python

SPARK_HOME = Path(pyspark.__file__).parent
ASK = "import os, sys; print(os.environ['PYTHONPATH']); print(sys.argv[1:])"


def test_archives_of_spark_leave_the_path_and_everything_else_stays(tmp_path: Path) -> None:
    folder = tmp_path / "with a space and a '"
    folder.mkdir()
    program = worker_python(SPARK_HOME, folder)
    kept = ["/some where/else.zip", str(SPARK_HOME.parent)]
    left_out = [
        str(SPARK_HOME / "python" / "lib" / "pyspark.zip"),
        str(SPARK_HOME / "jars" / "spark-core.jar"),
    ]
    given = os.pathsep.join([left_out[0], kept[0], left_out[1], kept[1]])
    answer = subprocess.run(
        [program, "-c", ASK, "two words", "*"],
        env={**os.environ, "PYTHONPATH": given},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == [os.pathsep.join(kept), "['two words', '*']"]


def test_a_path_that_was_never_set_does_no_harm(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    program = worker_python(SPARK_HOME, tmp_path)
    command = [program, "-c", "import sys; print(sys.executable)"]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == sys.executable


def test_a_spark_from_elsewhere_keeps_its_archives(tmp_path: Path) -> None:
    assert worker_python(tmp_path / "spark", tmp_path) == sys.executable
    assert list(tmp_path.iterdir()) == []
