"""The Java processes of a gateway, for tests that kill or stop them."""

from __future__ import annotations

import psutil

from tests.crash.waiting import until


def java_processes(gateway: int) -> list[psutil.Process]:
    """Those that run, with the process id of the gateway given."""
    found = []
    for child in psutil.Process(gateway).children():
        try:
            if child.name() == "java" and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            # It has just ended.
            continue
    return found


def kill_java(gateway: int) -> None:
    """Kill the one that there is, by SIGKILL, and return when it is gone."""
    until(
        lambda: len(java_processes(gateway)) == 1,
        lambda: f"one Java process: {java_processes(gateway)}",
    )
    java = java_processes(gateway)[0]
    java.kill()
    until(lambda: java not in java_processes(gateway), "the Java process stays")
