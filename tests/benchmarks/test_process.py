"""What is measured of a server's processes."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.process import ProcessTree

_MIB = 2**20
# Holds 64 MiB, and starts a child that shares them until it has ended: the parent cannot go on
# before.
_VFORKS = """
import ctypes, time
held = bytearray(b"x") * (64 << 20)
libc = ctypes.PyDLL(None)
print("begun", flush=True)
if libc.vfork() == 0:
    libc.sleep(60)
    libc._exit(0)
"""


def test_memory_that_two_processes_share_counts_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tree = ProcessTree([sys.executable, "-c", _VFORKS], dict(os.environ), tmp_path, log)
    try:
        until = time.monotonic() + 30
        while len(tree.pids()) < 2:
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.01)
        assert 64 * _MIB < tree.resident_bytes() < 128 * _MIB
    finally:
        tree.kill()
