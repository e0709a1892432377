"""The tutorial's sessions print what its page says.

They run in one shell, in their order. The commands are real, and so are the gateways and the
``kill -9``. Only the ports are others.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import psutil

from tests.end_to_end.sessions import PATIENCE, commands
from tests.gateway_process import ROOT, free_port

TUTORIAL: Final = ROOT / "docs" / "tutorial"
SESSIONS: Final = sorted(TUTORIAL.glob("*.session"))
#: What the page calls the ports of the two gateways: for STOMP, the port mapper and the console.
PORTS: Final = (7672, 7676, 7677, 7682, 7686, 7687)
_MARK: Final = "-- exit code "


def _installed(folder: Path, ports: dict[int, int]) -> Path:
    """Return a directory with the commands, on other ports."""
    made = folder / "bin"
    made.mkdir()
    gateway = (
        f"-Dimq.bridge.stomp.tcp.port={ports[7672]} -Dimq.portmapper.port={ports[7676]} "
        f"-Dimq.bridge.admin.port={ports[7677]}"
    )
    for name, arguments in (
        ("python", ""),
        ("stomp-gateway", f"-c 'from gateway.command import main; main()' {gateway}"),
        ("imqbridgemgr", "-c 'from gateway.admin.cli.imqbridgemgr import main; main()'"),
        ("imqcmd", "-c 'from gateway.admin.cli.imqcmd import main; main()'"),
    ):
        file = made / name
        file.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        file.chmod(0o755)
    return made


def test_it_works_as_it_is_written(tmp_path: Path) -> None:
    ports = {port: free_port() for port in PORTS}
    folder = tmp_path / "tutorial"
    shutil.copytree(TUTORIAL, folder)
    for file in folder.iterdir():
        text = file.read_text()
        for given, there in ports.items():
            text = text.replace(str(given), str(there))
        file.write_text(text)
    typed = [each for name in SESSIONS for each in commands((folder / name.name).read_text())]
    script = "".join(f'{command}\necho "{_MARK}$?"\n' for command, _ in typed)
    environment = {
        **os.environ,
        "PATH": f"{_installed(tmp_path, ports)}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    shell = subprocess.Popen(
        ["bash", "-m", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = shell.communicate(timeout=PATIENCE)
    finally:
        if shell.poll() is None:
            for process in [*psutil.Process(shell.pid).children(recursive=True), shell]:
                process.kill()
    told = f"{out}\n{err}\n" + "".join(file.read_text() for file in folder.glob("*.log"))
    expected = "".join(f"{printed.rstrip()}\n{_MARK}0\n".lstrip() for _, printed in typed)
    assert [line.rstrip() for line in out.splitlines()] == expected.splitlines(), told


def test_every_file_is_on_the_page() -> None:
    page = (ROOT / "docs" / "first_bridge.rst").read_text()
    assert [path.name for path in TUTORIAL.iterdir() if f"tutorial/{path.name}" not in page] == []
