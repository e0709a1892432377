"""A machine of its own for a test: this one's files, to be changed.

Namespaces of Linux, an overlay over a file system and, if wanted, a systemd that was really booted.
Its network has nothing but the loopback interface. Needs root.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest

SCRIPT: Final = Path(__file__).with_name("machine.sh")
#: How long a machine may take to boot, and a command on it to end, in seconds.
PATIENCE: Final = 180.0
NAMESPACES: Final = ("mount", "pid", "ipc", "uts", "net")
#: Nothing but what every service needs: no timers, and no services of this machine.
SYSTEMD: Final = ("/sbin/init", "--unit=sysinit.target", "--show-status=no", "--log-target=journal")
SLEEP: Final = ("sleep", "infinity")
CGROUPS: Final = Path("/sys/fs/cgroup")


def needs_root() -> None:
    """Leave out a test that a user who is not root cannot run."""
    if os.geteuid() != 0:
        pytest.skip("only root can have a machine of its own")


class CannotBoot(Exception):
    """This system lets no other systemd run in it."""


class Machine:
    """A machine, from the beginning of the block to its end.

    :param base: an empty folder.
    :param lower: the system that it begins with.
    :param init: its first process.
    """

    def __init__(self, base: Path, *, lower: Path = Path("/"), init: Sequence[str] = SLEEP) -> None:
        self._base: Final = base
        self._lower: Final = lower
        self._init: Final = init
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0
        self._groups: list[Path] = []
        self._output: Final = tempfile.TemporaryFile()  # noqa: SIM115

    def __enter__(self) -> Self:
        command = ["unshare", *(f"--{name}" for name in NAMESPACES), "--fork", "--kill-child"]
        if self._init is SYSTEMD:
            command.append("--cgroup")
            self._make_groups()
        self._process = subprocess.Popen(
            [*command, "sh", SCRIPT, self._lower, self._base, *self._init],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            preexec_fn=self._enter_groups,
        )
        try:
            self._wait_for_it()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()

    def run(
        self, *command: str, check: bool = True, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command there, as root."""
        given = environment or {}
        done = subprocess.run(
            [*self._inside(), *(f"{name}={value}" for name, value in given.items()), *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert not check or done.returncode == 0, (
            f"{command} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
        )
        return done

    def path(self, name: str) -> Path:
        """A file of the machine, as it is seen from outside."""
        return Path(f"/proc/{self._pid}/root") / name.lstrip("/")

    def _inside(self) -> list[str]:
        options = [f"--{name}" for name in NAMESPACES]
        clean = ("env", "-i", "LANG=C.UTF-8", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root")
        return ["nsenter", "--target", str(self._pid), *options, "--root", "--wd", *clean]

    def _wait_for_it(self) -> None:
        assert self._process is not None
        until = time.monotonic() + PATIENCE
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        while True:
            if self._process.poll() is not None or time.monotonic() > until:
                self._output.seek(0)
                raise CannotBoot(self._output.read().decode(errors="replace"))
            with_children = children.read_text().split()
            if with_children:
                self._pid = int(with_children[0])
                if self._is_up():
                    return
            time.sleep(0.05)

    def _is_up(self) -> bool:
        # The script has given way to the first process.
        if not self.path("/run/machine").exists():
            return False
        if self._init is not SYSTEMD:
            return True
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in ("running", "degraded")

    def _make_groups(self) -> None:
        unified = (CGROUPS / "cgroup.procs").exists()
        parents = [CGROUPS] if unified else [CGROUPS / "unified", CGROUPS / "systemd"]
        for parent in parents:
            group = parent / f"stomp-gateway-test-{os.getpid()}"
            try:
                group.mkdir(exist_ok=True)
            except OSError as error:
                raise CannotBoot(f"{group}: {error}") from error
            self._groups.append(group)

    def _enter_groups(self) -> None:
        for group in self._groups:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        for group in self._groups:
            _remove_group(group)
        self._output.close()


def _remove_group(group: Path) -> None:
    """Remove a group of processes that may still be ending."""
    until = time.monotonic() + 10
    folders = sorted(group.rglob("*/"), key=lambda path: len(path.parts), reverse=True)
    for folder in [*(each for each in folders if each.is_dir()), group]:
        while folder.exists():
            try:
                folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    return
                time.sleep(0.02)
