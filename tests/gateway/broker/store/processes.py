"""Starts :mod:`tests.gateway.broker.store.child`, talks to it and kills it; builds the faulty
disk.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.postgresql import Cluster

ROOT = Path(__file__).parents[4]
SOURCE = ROOT / "tests" / "crash" / "faulty_disk.c"


def build_faulty_disk(folder: Path) -> Path:
    """Compile the preloaded library; it needs a C compiler, as ``cc``."""
    library = folder / "faulty_disk.so"
    subprocess.run(
        [
            "cc",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            str(library),
            str(SOURCE),
            "-ldl",
        ],
        check=True,
    )
    return library


class FullDisk:
    """A preloaded disk below the tables of a server of PostgreSQL.

    The server is restarted for it. The disk has room until :meth:`fill` or :meth:`limit`. The
    server's log is on another one, without which it ends.
    """

    def __init__(self, cluster: Cluster) -> None:
        cluster.stop()
        self._control = cluster.folder / "control"
        self.make_room()
        # The server runs as another user.
        self._control.chmod(0o644)
        library = build_faulty_disk(cluster.folder)
        library.chmod(0o755)
        cluster.environment |= {
            "LD_PRELOAD": str(library),
            "FAULTY_DISK": str(cluster.data / "base"),
            "FAULTY_DISK_CONTROL": str(self._control),
        }
        cluster.start()

    def fill(self) -> None:
        self._control.write_text(f"write {errno.ENOSPC}\n")

    def limit(self, octets: int) -> None:
        """Bound the bytes that files grow by since the server's start."""
        self._control.write_text(f"space {octets}\n")

    def make_room(self) -> None:
        """Have room without a limit."""
        self._control.write_text("")


class Process:
    """A child with a store at a path or a URL.

    It is killed when the ``with`` block ends, if it lives.

    :param faulty: the library of :func:`build_faulty_disk`, and the file that says what fails.
    """

    def __init__(
        self, path: Path | str, *, faulty: tuple[Path, Path] | None = None, **options: object
    ) -> None:
        environment = dict(os.environ, PYTHONPATH=str(ROOT))
        if faulty is not None:
            library, control = faulty
            environment.update(
                LD_PRELOAD=str(library),
                FAULTY_DISK=str(Path(path).parent),
                FAULTY_DISK_CONTROL=str(control),
            )
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.gateway.broker.store.child",
                str(path),
                json.dumps(options),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()

    def say(self, do: str, **arguments: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        self._process.stdin.flush()

    def line(self) -> str:
        """The next line it prints; "" when it is gone."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def ask(self, do: str, **arguments: object) -> dict[str, Any]:
        self.say(do, **arguments)
        line = self.line()
        assert line, f"the child died of {do}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def numbers(self, most: int | None = None) -> int:
        """Read what a stream prints until it dies, or so many numbers.

        :returns: the last.
        """
        last = 0
        while most is None or last < most:
            line = self.line()
            if not line:
                break
            assert int(line) == last + 1
            last += 1
        return last

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def kill(self) -> int:
        """SIGKILL it, unless it is dead.

        :returns: the last number it had still printed, 0 for none.
        """
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        assert self._process.stdout is not None
        assert self._process.stdin is not None
        if self._process.stdout.closed:
            return 0
        rest = self._process.stdout.read().split()
        self._process.wait()
        self._process.stdout.close()
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            # What was said to it last was not read.
            assert self._process.returncode
        return int(rest[-1]) if rest and rest[-1].isdigit() else 0

    @property
    def status(self) -> int:
        """How it ended; -9 when it was killed."""
        return self._process.wait(timeout=60)
