"""One writer of a table at a time.

Owns the lock of a table's folder, and who has it: the Java machine, which does the writing, and not
the Python process that drives it. When that one is killed, its Java machine may go on with what it
was told for a moment; the system gives the lock free when the machine is gone, and so can write
nothing any more.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from pipeline.errors import PipelineError
from pipeline.tables.lines import place

#: Seconds that a Java machine without its driver is given to end.
PATIENCE: Final = 30.0
_NAME: Final = "_lock"
_POLL_SECONDS: Final = 0.1


@contextmanager
def alone(spark: SparkSession, folder: str, patience: float | None = None) -> Iterator[None]:
    """Hold the folder's lock while the body runs.

    It holds on this machine and on others that share its file system.

    Only where Spark sees the folder as one of this machine's: others, such as HDFS and S3, have no
    such locks, and nothing is kept away there.

    :param folder: is made where it is not there.
    :param patience: seconds to wait for the process that has it; None: :data:`PATIENCE`.
    :raises PipelineError: when somebody else has it for all that time.
    """
    files, path = place(spark, f"{folder}/{_NAME}")
    if files.getUri().getScheme() != "file":
        yield
        return
    files.mkdirs(path.getParent())
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    file = jvm.java.io.RandomAccessFile(files.pathToFile(path), "rw")
    try:
        until = time.monotonic() + (PATIENCE if patience is None else patience)
        while not _locked(file.getChannel()):
            if time.monotonic() >= until:
                raise PipelineError(
                    f"another ingest is at work on {folder}: expected one at a time"
                )
            time.sleep(_POLL_SECONDS)
        yield
    finally:
        # That gives the lock back, too.
        file.close()


def _locked(channel: Any) -> bool:
    """Whether the lock could be had now."""
    try:
        return channel.tryLock() is not None
    except Py4JJavaError as error:
        # This Java machine has it already: another thread's run.
        if error.java_exception.getClass().getSimpleName() != "OverlappingFileLockException":
            raise
        return False
