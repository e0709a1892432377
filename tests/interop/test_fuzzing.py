"""Autobahn's fuzzing client against the reader of WebSocket frames.

It tries everything but compression, which is not agreed to. Its newest release runs on Python 2.7 only, which this needs: as ``python2.7``, from pyenv, or where
the variable PYTHON2 says. pip brings its packages into ``build``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.gateway_process import HOST, ROOT, free_port

pytestmark = [pytest.mark.process, pytest.mark.long, pytest.mark.xdist_group("fuzzing")]

_RELEASE: Final = "autobahntestsuite==0.8.2"
_PACKAGES: Final = ROOT / "build" / "autobahn"
#: What it calls as good as it needs to be.
_GOOD: Final = ("OK", "INFORMATIONAL")
#: Cases of compression.
_NOT_AGREED_TO: Final = ["12.*", "13.*"]
#: Cases that it has besides.
_CASES: Final = 301
#: Packages of Python 2 that share a namespace are found by a folder of packages only.
_RUN: Final = """\
import site, sys
site.addsitedir(sys.argv.pop(1))
from autobahntestsuite.wstest import run
run()
"""


def _python2() -> str:
    """A Python 2.7 that runs."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    tried = [
        os.environ.get("PYTHON2", "python2.7"),
        *map(str, sorted(pyenv.glob("versions/2.7*/bin/python2.7"))),
    ]
    for python in tried:
        try:
            subprocess.run([python, "-c", "import pip"], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python
    pytest.fail(
        f"no Python 2.7 with pip runs, of {', '.join(tried)}; the fuzzing client needs one: say where it is by PYTHON2"
    )


def _bring(python: str) -> None:
    brought = _PACKAGES / ".brought"
    if brought.exists() and brought.read_text() == _RELEASE:
        return
    command = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*command, "--target", str(_PACKAGES), "--upgrade", _RELEASE], check=True)
    brought.write_text(_RELEASE)


@contextmanager
def _echoing() -> Iterator[int]:
    """The port where messages come back."""
    port = free_port()
    command = [sys.executable, "-m", "tests.interop.websocket_echo", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as echo:
        try:
            assert echo.stdout is not None
            assert echo.stdout.readline() == "ready\n"
            yield port
        finally:
            echo.kill()


def test_all_its_cases_pass(tmp_path: Path) -> None:
    python = _python2()
    _bring(python)
    report, plan = tmp_path / "report", tmp_path / "plan.json"
    with _echoing() as port:
        server = {"agent": "gateway", "url": f"ws://{HOST}:{port}/stomp"}
        plan.write_text(
            json.dumps(
                {
                    "outdir": str(report),
                    "servers": [server],
                    "cases": ["*"],
                    "exclude-cases": _NOT_AGREED_TO,
                    "exclude-agent-cases": {},
                }
            )
        )
        arguments = [str(_PACKAGES), "-m", "fuzzingclient", "-s", str(plan)]
        subprocess.run(
            [python, "-c", _RUN, *arguments],
            cwd=tmp_path,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    cases = json.loads((report / "index.json").read_text())["gateway"]
    wrong = {
        name: (case["behavior"], case["behaviorClose"])
        for name, case in cases.items()
        if case["behavior"] not in _GOOD or case["behaviorClose"] not in _GOOD
    }
    assert wrong == {}
    assert len(cases) == _CASES
