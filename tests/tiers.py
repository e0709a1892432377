"""Which tests run when, and which of them share a worker.

===========  ==================================================================================
tier         what runs
===========  ==================================================================================
quick        bare ``pytest``: no test with a mark of :data:`MARKS`; few examples
named        ``pytest PATH``: everything below the paths but ``long``; ``make test`` names all
long         ``--long``: everything, and many examples
===========  ==================================================================================

Three marks say what a test needs, and ``slow`` that it works for seconds. A test gets them from its
file (``pytestmark``), from its folder (:data:`FOLDERS`) or from a fixture that it asks for
(:data:`FIXTURES`). :class:`Needs` fails a test that starts a process or opens a port without a mark,
so the quick tier stays quick.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pytest

PROCESS: Final = "process"
BROKERS: Final = "brokers"
SPARK: Final = "spark"
SLOW: Final = "slow"
LONG: Final = "long"

#: The marks, with what each means. The quick tier has no test with one of them.
MARKS: Final = {
    PROCESS: "starts processes or opens ports",
    BROKERS: "shares ActiveMQ or RabbitMQ with the other tests of its worker",
    SPARK: "shares one Spark session with the other tests of its worker",
    SLOW: "needs nothing of the machine but seconds of its time",
    LONG: "runs with --long only",
}
#: Folders of which every test has this mark. The quick tier does not even import them.
FOLDERS: Final[dict[str, str]] = {
    "tests/benchmarks": PROCESS,
    "tests/bridge/providers/jms": PROCESS,
    "tests/conformance": PROCESS,
    "tests/crash": PROCESS,
    "tests/end_to_end": PROCESS,
    "tests/faults": PROCESS,
    "tests/hostile": PROCESS,
    "tests/interop": PROCESS,
    "tests/takeover": PROCESS,
    "tests/why": PROCESS,
}
#: Fixtures that bring a mark along.
FIXTURES: Final = {
    "certificates": PROCESS,
    "free_port": PROCESS,
    "imq": PROCESS,
    "postgresql": PROCESS,
    "postgresql_cluster": PROCESS,
    "spark": SPARK,
    "start_gateway": PROCESS,
}
#: A file gives all its tests a mark by this line.
_PYTESTMARK: Final = re.compile(r"^pytestmark = pytest\.mark\.(\w+)$", re.MULTILINE)
#: Files here take no disk, where the system has it.
_IN_MEMORY: Final = Path("/dev/shm")
#: Octets of files that all tests of the quick tier leave, and room for others.
_ROOM: Final = 1 << 30
#: Each worker of the quick tier has to find the tests first; more would save nothing.
_MOST_WORKERS: Final = 8
#: Tests with these marks share one worker, as what they need is slow to start and is shared.
_SHARING: Final = (SPARK, BROKERS)
#: What Python's audit events say of a test that is not quick.
_STARTS: Final = frozenset(
    {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec"}
)
#: Not socket.connect: it may be a retry that another test of this worker has left behind.
_OPENS: Final = "socket.bind"


@cache
def folder_mark(path: str) -> str | None:
    """Return the mark of the folder that a path, relative to the project, lies in."""
    folders = [path, *map(str, PurePosixPath(path).parents)]
    return next((FOLDERS[folder] for folder in folders if folder in FOLDERS), None)


def file_mark(source: str) -> str | None:
    """Return the mark that a file gives all its tests, read without importing what they need."""
    found = _PYTESTMARK.search(source)
    return found[1] if found and found[1] in MARKS else None


@cache
def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def mark(item: pytest.Item, root: Path) -> None:
    """Give a test the marks of its folder and fixtures, and the group that shares a worker."""
    path = _relative(item.path, root)
    wanted = {FIXTURES[name] for name in getattr(item, "fixturenames", ()) if name in FIXTURES}
    if of_folder := folder_mark(path):
        wanted.add(of_folder)
    for name in sorted(wanted):
        item.add_marker(name)
    shared = next((name for name in _SHARING if item.get_closest_marker(name)), None)
    # Tests of one file stay together, because many share a server that their file starts.
    item.add_marker(pytest.mark.xdist_group(shared or path))


def is_quick(item: pytest.Item) -> bool:
    """Tell whether a test belongs to the quick tier."""
    return not any(mark.name in MARKS for mark in item.iter_markers())


def _memory() -> Path | None:
    """Return where the quick tier's files take no disk, unless the environment says where to."""
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK):
        return None
    return _IN_MEMORY if shutil.disk_usage(_IN_MEMORY).free >= _ROOM else None


def quick_workers() -> int:
    """Return how many workers share the quick tier; asked before anything is configured."""
    cores = os.cpu_count() or 1
    # Those that wait for a disk leave time for one more.
    return min(cores if _memory() else cores + 1, _MOST_WORKERS)


def keep_files_in_memory() -> None:
    """Let this process and its workers make temporary files in memory, where there is room.

    Tests that cut the power or fill a disk are of the other tiers, or have a disk of their own.
    """
    if memory := _memory():
        os.environ["TMPDIR"] = str(memory)
        # What was found before stays otherwise.
        tempfile.tempdir = None


def begins(item: pytest.Item) -> int:
    """Sort key: what takes longest begins first."""
    order = (SPARK, BROKERS, PROCESS)
    return next(
        (place for place, name in enumerate(order) if item.get_closest_marker(name)), len(order)
    )


class Needs:
    """Notices what a test needs of the machine, by Python's audit events.

    There is no way to remove an audit hook, so there is one object for the whole run.
    """

    def __init__(self) -> None:
        self._seen: list[str] | None = None
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._seen is None:
            return
        if event in _STARTS:
            self._seen.append(f"starts a process ({event})")
        elif event == _OPENS and isinstance(arguments[1], tuple):
            # A tuple is an internet address; a name in the file system costs nothing.
            self._seen.append(f"opens a port ({event} {arguments[1]})")

    @contextmanager
    def none(self, item: pytest.Item) -> Iterator[None]:
        """Fail a test of the quick tier if the block starts a process or opens a port."""
        if not is_quick(item):
            yield
            return
        seen = self._seen = []
        try:
            yield
        finally:
            self._seen = None
        if seen:
            pytest.fail(f"{item.name} {seen[0]}; mark it pytest.mark.{PROCESS}", pytrace=False)
