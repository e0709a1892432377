"""The memory of the machine.

How much there is, who may have it, and how freed memory goes back.

"The machine" is what the process may really use: the memory of the computer, or the limit of a
control group around the process where that is lower, as in a container. Knows no settings; works
without control groups, and with their versions 1 and 2, mixed or not.

The C library keeps freed memory for later. After a flood that is most of what the process had: the
free memory lies in holes between what is in use, and only the end of the heap goes back by itself.
glibc's ``malloc_trim`` gives the holes back, too.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall

#: Percent of the machine's memory that the broker's budget and all Java heaps may take together.
SHARE_PERCENT: Final = 60
#: Percent that the broker's budget takes where the settings say nothing; Java has the rest of the
#: share.
BUDGET_PERCENT: Final = 40
#: Objects made between two collections of the youngest: messages are made in runs and die young.
_GC_THRESHOLD: Final = 50_000


def collect_rarely() -> None:
    """Have Python's collector look rarely, and not at what is there now."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 100)


def memory(root: Path = Path("/")) -> int:
    """The bytes of memory that this process may use.

    :param root: where ``proc`` and ``sys`` are, for tests.
    """
    installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min([installed, *cgroup_limits(root)])


def share(machine: int) -> int:
    """Return the bytes that the budget and all Java heaps may take.

    Together, at most, on a machine with this much memory.
    """
    return machine * SHARE_PERCENT // 100


def default_budget(machine: int) -> int:
    """The bytes of the broker's budget where the settings give none."""
    return machine * BUDGET_PERCENT // 100


def java_heaps(machine: int, budget: int) -> int:
    """The most bytes that all Java heaps may take together.

    :param budget: the broker's budget.
    :returns: what it leaves of the share; never negative.
    """
    return max(share(machine) - budget, 0)


def cgroup_limits(root: Path = Path("/")) -> Iterator[int]:
    """Yield each memory limit that control groups set, in bytes.

    Yields nothing without control groups, or without limits in them.
    """
    mounts = _mounts(root)
    for line in _read(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            kind, name = "cgroup2", "memory.max"
        elif "memory" in controllers.split(","):
            kind, name = "cgroup", "memory.limit_in_bytes"
        else:
            continue
        for within, mount in mounts.get(kind, []):
            yield from _limits(mount, _below(within, path), name)


def _limits(mount: Path, path: PurePosixPath, name: str) -> Iterator[int]:
    """The limits of a group and of all groups around it: each of them holds."""
    for group in (path, *path.parents):
        text = _read(mount / group / name).strip()
        # "max" is no limit in version 2; version 1 says so by a number that no machine has.
        if text.isdecimal():
            yield int(text)


def _mounts(root: Path) -> dict[str, list[tuple[str, Path]]]:
    """Return the mounted hierarchies by type (``cgroup``, ``cgroup2``).

    Each is the group that is its root, and where it is mounted.

    Of version 1 only the one that has the memory controller.
    """
    found: dict[str, list[tuple[str, Path]]] = {}
    for line in _read(root / "proc/self/mountinfo").splitlines():
        # proc(5): ID, parent, device, root, mount point, options, optional fields, "-", type,
        # source, options of the file system.
        fields, separator, rest = line.partition(" - ")
        before, after = fields.split(), rest.split()
        if (
            not separator
            or len(before) < 5
            or len(after) < 3
            or after[0] not in ("cgroup", "cgroup2")
        ):
            continue
        if after[0] == "cgroup" and "memory" not in after[2].split(","):
            continue
        found.setdefault(after[0], []).append((before[3], root / before[4].lstrip("/")))
    return found


def _below(within: str, path: str) -> PurePosixPath:
    """Return a group's path below a mount whose root is ``within``.

    In a container the path may be the host's, or lead out of what is mounted; then the mount's own
    root is the group that counts.
    """
    parts = PurePosixPath(path.lstrip("/"))
    mounted = PurePosixPath(within.lstrip("/"))
    if ".." in parts.parts:
        return PurePosixPath()
    try:
        return parts.relative_to(mounted)
    except ValueError:
        return PurePosixPath()


def _read(path: Path) -> str:
    """Return the text of a file; empty where it cannot be read.

    Without control groups there are no such files.
    """
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


#: Seconds between two looks, and at least between two trims.
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 2.0
#: Bytes that must have been let go since the last trim.
_FALLEN: Final = 64 * 1024 * 1024
#: It is still falling if it fell by so much since the last look. One trim comes after all of it, so
#: that nothing is left over,
_FALLING: Final = 1024 * 1024
#: but not so late that so much goes back at once: threads that want memory wait for a trim, 0.1 to
#: 0.2 ms for each MiB.
_MUCH: Final = 256 * 1024 * 1024
#: What is left over goes back after that many looks at which it did not fall, if it is that much.
_QUIET: Final = 10
_LITTLE: Final = 8 * 1024 * 1024


def malloc_trim() -> Callable[[], object] | None:
    """Return what gives freed memory back to the system.

    None where the C library has no such function, as musl and macOS's.
    """
    try:
        found = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return None
    found.argtypes, found.restype = [ctypes.c_size_t], ctypes.c_int
    # ctypes lets go of the interpreter meanwhile.
    return lambda: found(0)


class Trimming:
    """Trims some time after much memory was let go, in a thread.

    :param reactor: the reactor, whose threads are used.
    :param held: returns the bytes that are in use by what comes and goes.
    :param trim: gives memory back; None does nothing at all.
    """

    def __init__(
        self, reactor: Any, held: Callable[[], int], trim: Callable[[], object] | None
    ) -> None:
        self._reactor: Final = reactor
        self._held: Final = held
        self._trim: Final = trim
        #: The most that was held since the last trim, what was at the last look, and at how many
        #: looks before it did not fall.
        self._most = 0
        self._last = 0
        self._quiet = 0
        self._trimmed = 0.0
        self._call: IDelayedCall | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._trim is not None:
            self._trimmed = self._reactor.seconds()
            self._call = self._reactor.callLater(_LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more. Idempotent."""
        call, self._call = self._call, None
        if call is not None:
            call.cancel()

    def _look(self) -> None:
        held, last = self._held(), self._last
        self._last = held
        self._most = max(self._most, held)
        now = self._reactor.seconds()
        fallen = self._most - held
        self._quiet = self._quiet + 1 if last - held < _FALLING else 0
        enough = (
            fallen >= _MUCH
            or (fallen >= _FALLEN and self._quiet > 0)
            or (fallen >= _LITTLE and self._quiet >= _QUIET)
        )
        if enough and now - self._trimmed >= _PAUSE_S:
            self._most, self._trimmed = held, now
            self._reactor.callInThread(self._trim)
        self._call = self._reactor.callLater(_LOOK_S, self._look)
