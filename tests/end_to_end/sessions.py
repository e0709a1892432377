"""The cookbook's sessions, run as they stand: files and commands of ``docs/cookbook``, with nothing
replaced but ports and where the gateway's files are.

A session is what a reader would see in a terminal. A line that begins with ``$`` is a command,
which a backslash at its end continues; what follows up to the next one is what it prints. ``&`` at
the end has it run beside the others, and ``wait %N`` then shows what the N-th of those printed. The
gateway is started as :mod:`tests.gateway_process` does, with the settings of its command, and
waited for.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.gateway_process import INSTANCE, ROOT, GatewayProcess

COOKBOOK: Final = ROOT / "docs" / "cookbook"
#: How long one command may take, in seconds.
PATIENCE: Final = 120
#: Files of the cookbook that have ports in them.
_WITH_PORTS: Final = (".xml", ".session")
#: Of the gateway's settings, those that the test gives by itself.
_OURS: Final = frozenset({"imq.hostname"})


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a session with what it prints."""
    command, printed = "", ""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("$ "):
            if command:
                yield command, printed
            command, printed = line[2:], ""
        else:
            printed += line + "\n"
    yield command, printed


class Terminal:
    """Runs one session in a copy of the cookbook.

    :param folder: for the copy and the gateway's files.
    :param ports: what is to stand for the ports in the cookbook.
    """

    def __init__(self, folder: Path, ports: Mapping[int, int], ending: ExitStack) -> None:
        self._ending = ending
        self._ports = dict(ports)
        self._beside: dict[int, subprocess.Popen[str]] = {}
        self._started = 0
        self._gateway = GatewayProcess(folder / "var")
        self._gateway_number = 0
        self._ports |= {7672: self._gateway.port, 7676: self._gateway.port_mapper_port}
        self._folder = folder / "cookbook"
        shutil.copytree(COOKBOOK, self._folder)
        for file in self._folder.iterdir():
            if file.suffix in _WITH_PORTS:
                text = file.read_text()
                for given, there in self._ports.items():
                    text = text.replace(str(given), str(there))
                file.write_text(
                    text.replace("var/instances/imqbroker", f"{folder}/var/instances/{INSTANCE}")
                )
        self._environment = {
            **os.environ,
            "PATH": f"{_commands(folder)}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            # For programs that end soon.
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        ending.callback(self._gateway.kill)

    def run(self, name: str) -> None:
        """Run the session of that name.

        :raises AssertionError: something else was printed, or a command failed.
        """
        for command, printed in commands((self._folder / f"{name}.session").read_text()):
            words = shlex.split(command)
            if words[0] == "stomp-gateway":
                self._start_gateway(words)
            elif words[0] == "kill":
                assert (
                    int(words[1].removeprefix("%")) == self._gateway_number or self._started > 1
                ), command
                assert self._gateway.terminate() == 0, self._gateway.said
            elif words[0] == "wait":
                self._compare(command, self._beside.pop(int(words[1].removeprefix("%"))), printed)
            else:
                beside = command.endswith("&")
                process = self._shell(command.removesuffix("&"))
                if beside:
                    self._started += 1
                    self._beside[self._started] = process
                else:
                    self._compare(command, process, printed)
        assert not self._beside

    def _start_gateway(self, words: list[str]) -> None:
        assert words[-1] == "&"
        given = [word.removeprefix("-D") for word in words if word.startswith("-D")]
        settings = dict(word.split("=", 1) for word in given)
        listed = settings["imq.bridge.activelist"].split(",")
        self._gateway.settings |= {
            name: value.replace("$PWD", str(self._folder))
            for name, value in settings.items()
            if name not in _OURS
        }
        if "stomp" not in listed:
            # What is waited for is then another thing than its port.
            self._gateway.settings["imq.bridge.stomp.tcp.enabled"] = "false"
        self._gateway.start()
        self._gateway.wait_for_output("is ready")
        self._started += 1
        self._gateway_number = self._started

    def _shell(self, command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._ending.callback(_end, process)
        return process

    def _compare(self, command: str, process: subprocess.Popen[str], printed: str) -> None:
        out, err = process.communicate(timeout=PATIENCE)
        told = f"$ {command}\n{out}{err}\n{self._gateway.said}\n{self._gateway.log[-4000:]}"
        assert process.returncode == 0, told
        assert _lines(out) == _lines(printed), told


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def _end(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        process.kill()
        process.communicate()


def _commands(folder: Path) -> Path:
    """A directory with the commands that a session uses, of this checkout."""
    made = folder / "bin"
    made.mkdir()
    for name, arguments in (
        ("python", ""),
        ("imqbridgemgr", " -c 'from gateway.admin.cli.imqbridgemgr import main; main()'"),
    ):
        file = made / name
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)}{arguments} "$@"\n')
        file.chmod(0o755)
    return made
