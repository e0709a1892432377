"""Checks of the machine: descriptors, disk, clock, memory.

Owns what is too little of each. Those of the disk block, and are for a thread.
"""

from __future__ import annotations

import os
import resource
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Final

from gateway.admin.doctor.finding import Finding, Severity, by_limits, octets
from gateway.instance.memory import host_memory
from gateway.instance.memory.budget import Usage

#: Descriptors that a process needs besides those of its clients.
_OWN_DESCRIPTORS: Final = 200
#: Free bytes below which persistent messages may soon have to wait: twice the store's reserve.
_LEAST_FREE: Final = 256 * 1024**2
#: Free bytes below which it is time to look, or a tenth of the disk where that is less.
_LITTLE_FREE: Final = 10 * 1024**3
#: Seconds of a sync of 4 KiB.
_SLOW_SYNC_S: Final = 0.05
_BROKEN_SYNC_S: Final = 1.0
_SYNCS: Final = 5
#: Seconds that the wall clock may differ from the other one since the start.
_STEP_S: Final = 1.0


def descriptors(most_connections: int) -> Finding:
    """Compare the limit of file descriptors with that of connections.

    :param most_connections: the setting; negative for no limit.
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = max(most_connections, 1024) + _OWN_DESCRIPTORS
    name = "imq.bridge.stomp.limit.connections"
    figure = f"{soft} descriptors; {name} is {most_connections}"
    if soft == resource.RLIM_INFINITY or (soft >= needed and most_connections >= 0):
        return Finding("descriptors", Severity.OK, "there are enough file descriptors", figure)
    if most_connections < 0:
        return Finding(
            "descriptors",
            Severity.WARNING,
            "connections have no limit, and file descriptors have one",
            figure,
            f"set {name}={max(1, soft - _OWN_DESCRIPTORS)}",
        )
    return Finding(
        "descriptors",
        Severity.WARNING,
        "there are fewer file descriptors than connections may need",
        figure,
        f"set LimitNOFILE={needed} in its systemd unit, or 'ulimit -n {needed}' before the start",
    )


def disks(folders: dict[str, Path]) -> Iterator[Finding]:
    """Look at the free space of each disk, once.

    :param folders: what is there, by what it is called.
    """
    seen: set[int] = set()
    for what, folder in folders.items():
        try:
            device = folder.stat().st_dev
            if device in seen:
                continue
            seen.add(device)
            usage = shutil.disk_usage(folder)
        except OSError as error:
            yield Finding(
                "disk", Severity.ERROR, f"{folder}: {error.strerror}", "", f"ls -ld {folder}"
            )
            continue
        severity = Severity.OK
        if usage.free < min(_LITTLE_FREE, usage.total // 10):
            severity = Severity.WARNING
        if usage.free < _LEAST_FREE:
            severity = Severity.ERROR
        yield Finding(
            "disk",
            severity,
            f"the disk of the {what} {'is nearly full' if severity is not Severity.OK else 'has room'}",
            f"{octets(usage.free)} of {octets(usage.total)} are free at {folder}",
            ""
            if severity is Severity.OK
            else f"du -xh {shlex.quote(str(folder))} | sort -h | tail",
        )


def sync_time(folder: Path) -> Finding:
    """Measure how long the disk of the store takes to confirm 4 KiB."""
    took: list[float] = []
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            for _ in range(_SYNCS):
                file.write(bytes(4096))
                file.flush()
                began = time.perf_counter()
                os.fsync(file.fileno())
                took.append(time.perf_counter() - began)
    except OSError as error:
        return Finding(
            "sync",
            Severity.ERROR,
            f"{folder}: nothing can be written there: {error.strerror}",
            "",
            f"df -h {shlex.quote(str(folder))}",
        )
    severity = by_limits(median(took), _SLOW_SYNC_S, _BROKEN_SYNC_S)
    return Finding(
        "sync",
        severity,
        "the disk of the store confirms writes"
        + ("" if severity is Severity.OK else " slowly, and each RECEIPT waits for that"),
        f"median {median(took) * 1000:.1f} ms, longest {max(took) * 1000:.1f} ms of {_SYNCS}",
        "" if severity is Severity.OK else "iostat -x 1 5; put store/ on a disk of its own",
    )


def clock(step_s: float) -> Finding:
    """Tell whether the clock was set.

    :param step_s: by how much since the start.
    """
    stepped = abs(step_s) >= _STEP_S
    return Finding(
        "clock",
        Severity.WARNING if stepped else Severity.OK,
        "the time of day was set while the process ran: messages expire earlier or later"
        if stepped
        else "the time of day has not jumped since the start",
        f"{step_s:+.3f} s",
        "timedatectl status; have chrony or systemd-timesyncd slew the clock" if stepped else "",
    )


def memory(usage: Usage) -> Finding:
    """Compare the memory budget with the machine."""
    machine = host_memory.memory()
    used = sum(usage.used.values())
    figure = f"{octets(used)} of {octets(usage.total)} used; the machine has {octets(machine)}"
    if usage.total > host_memory.share(machine):
        return Finding(
            "memory",
            Severity.WARNING,
            f"the memory budget is more than {host_memory.SHARE_PERCENT} % of the machine's memory",
            figure,
            f"set imq.memory.budget={host_memory.default_budget(machine)}",
        )
    full = used >= usage.total * 0.8
    return Finding(
        "memory",
        Severity.WARNING if full else Severity.OK,
        "little is left of the memory budget, and clients will wait"
        if full
        else "the memory budget fits the machine",
        figure,
        "imqcmd list cxn; imqcmd list dst" if full else "",
    )
