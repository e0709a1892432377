"""The memory of the machine: how much there is, and who may have it.

"The machine" is what the process may really use: the memory of the computer, or the limit of a
control group around the process where that is lower, as in a container. Knows no settings; works
without control groups, and with their versions 1 and 2, mixed or not.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

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
