"""Java programs of the tests, which answer line by line (``java/Lines.java``)."""

from __future__ import annotations

import atexit
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import IO, Final, cast

from bridge.providers.jms import build

_HERE: Final = Path(__file__).parent


class Program:
    """A program that is compiled and started once in each process of tests, and ends with it.

    :param main: the class.
    :param sources: folders beside this module, besides that of ``Lines.java``.
    :param class_path: jars.
    """

    def __init__(self, main: str, *sources: str, class_path: tuple[Path, ...] = ()) -> None:
        self._main = main
        self._sources = ("java", *sources)
        self._class_path = (*class_path, build.JARS / build.JAR)
        self._lock = Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, *question: str) -> list[str | None]:
        """Ask, and wait for the answer; any thread may.

        :raises RuntimeError: an exception was thrown.
        """
        with self._lock:
            process = self._process
            if process is None:
                process = self._process = self._start()
            # They are pipes.
            asked, answers = cast(IO[str], process.stdin), cast(IO[str], process.stdout)
            asked.write(" ".join(map(_encoded, question)) + "\n")
            asked.flush()
            line = answers.readline()
        if not line.endswith("\n") or line.startswith("!"):
            raise RuntimeError(f"{self._main} {question}: {_decoded(line[1:].strip())}")
        return [_decoded(field) for field in line.split()]

    def _start(self) -> subprocess.Popen[str]:
        folder = TemporaryDirectory(prefix="java-")
        classes = Path(folder.name)
        for sources in self._sources:
            build.compile_sources(_HERE / sources, classes, classes, *self._class_path)
        path = ":".join(map(str, (classes, *self._class_path)))
        command = [
            "java",
            "-Xrs",
            "-Xshare:auto",
            "-XX:TieredStopAtLevel=1",
            "-Xmx128m",
            "-cp",
            path,
            self._main,
        ]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="ascii"
        )

        def end() -> None:
            process.communicate()
            folder.cleanup()

        atexit.register(end)
        return process


def _encoded(text: str) -> str:
    return "=" + text.encode("utf-16-be", "surrogatepass").hex()


def _decoded(field: str) -> str | None:
    return None if field == "~" else bytes.fromhex(field[1:]).decode("utf-16-be", "surrogatepass")
