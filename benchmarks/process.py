"""A server's processes: started, measured through ``/proc``, ended.

They have a session of their own, and none is left behind.

Knows nothing of STOMP or of particular servers. Linux only, as ``/proc`` is.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_PDEATHSIG = 1
_CPUCLOCK_SCHED = 2
#: kcmp(2), where its number is known, and what it compares.
_KCMP = {"x86_64": 312, "aarch64": 272}.get(platform.machine())
_KCMP_VM = 1
_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """Have the kernel end the child when the benchmark dies, even by SIGKILL.

    Runs in the child before exec.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class ProcessTree:
    """A started command and everything it starts.

    :param arguments: the command line.
    :param environment: the whole environment of the command.
    :param directory: where it runs.
    :param log: a file that receives its standard output and error.
    :raises FileNotFoundError: when the command does not exist.
    """

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], directory: Path, log: Path
    ) -> None:
        with log.open("ab") as output:
            # A session of its own: its descendants are found by the session's number, and Ctrl-C in
            # the terminal does not reach them before the measurement is closed in order.
            self._process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=directory,
                env=dict(environment),
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        self.pid = self._process.pid

    def alive(self) -> bool:
        """Whether the command itself still runs."""
        return self._process.poll() is None

    def pids(self) -> list[int]:
        """All live processes of the command's session."""
        return [pid for pid, _ in self._living()]

    def cpu_seconds(self) -> float:
        """Return the tree's processor time so far, user and system.

        Descendants that have ended are included as far as they were waited for.
        """
        return sum(
            _clock(pid, fields) + sum(map(int, fields[13:15])) / _TICKS
            for pid, fields in _stat()
            if int(fields[3]) == self.pid
        )

    def resident_bytes(self) -> int:
        """Resident memory of the tree now."""
        return self._status("VmRSS:")

    def peak_bytes(self) -> int:
        """Return the summed peak resident memory since :meth:`reset_peak`."""
        return self._status("VmHWM:")

    def reset_peak(self) -> None:
        """Begin a new period for :meth:`peak_bytes`."""
        for pid in self.pids():
            try:
                Path(f"/proc/{pid}/clear_refs").write_text("5")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended between the listing and the writing

    def terminate(self, seconds: float) -> None:
        """Ask the command to end by SIGTERM; kill its session after ``seconds``."""
        if self.alive():
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):  # killed below
                self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End the whole session with SIGKILL and wait until nothing of it is left.

        :raises TimeoutError: when a process is still there after 10 s.
        """
        deadline = time.monotonic() + 10
        while True:
            if self.alive():
                self._process.kill()
                self._process.wait()
            left = self.pids()
            if not left:
                return
            if time.monotonic() > deadline:
                raise TimeoutError(f"processes {left} of session {self.pid} survive SIGKILL")
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.02)

    def _living(self) -> list[tuple[int, int]]:
        """The live processes, each with its parent."""
        return [
            (pid, int(fields[1]))
            for pid, fields in _stat()
            if int(fields[3]) == self.pid and fields[0] != "Z"
        ]

    def _status(self, name: str) -> int:
        total = 0
        for pid, parent in self._living():
            if _same_memory(pid, parent):
                continue
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            for line in text.splitlines():
                if line.startswith(name):
                    total += int(line.split()[1]) * 1024
        return total


def _clock(pid: int, fields: Sequence[str]) -> float:
    """Return a process's own seconds, to the nanosecond while it lives."""
    try:
        # As clock_getcpuclockid(3) makes its number. proc(5) counts hundredths of a second.
        return time.clock_gettime((~pid << 3) | _CPUCLOCK_SCHED)
    except OSError:
        return sum(map(int, fields[11:13])) / _TICKS


def _same_memory(pid: int, other: int) -> bool:
    """Whether the processes share all memory, as between vfork and exec.

    It would count twice.
    """
    return _KCMP is not None and _libc.syscall(_KCMP, pid, other, _KCMP_VM, 0, 0) == 0


def _stat() -> Iterator[tuple[int, list[str]]]:
    """Return every process with the fields of ``stat`` from the state on.

    In proc(5), field 3 is index 0.
    """
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                text = Path(f"/proc/{entry}/stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue
            yield int(entry), text[text.rindex(")") + 2 :].split()
