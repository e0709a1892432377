"""What fails only beside others is named; what fails again fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.twice import MOST

pytestmark = pytest.mark.process

_TOP = Path(__file__).parent.parent

_TESTS = """
import os, pathlib
import pytest

BEFORE = pathlib.Path("before")

@pytest.mark.parametrize("name", ["a@b"])
def test_by_chance(name):
    there = BEFORE.exists()
    BEFORE.touch()
    assert there

def test_alone():
    assert "PYTEST_XDIST_WORKER" not in os.environ

def test_good():
    pass
"""


def _run(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_some.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "tests.twice", *arguments, "test_some.py"],
        cwd=folder,
        env={
            **{key: value for key, value in os.environ.items() if "PYTEST" not in key},
            "PYTHONPATH": str(_TOP),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("-n", "2", "--dist", "loadgroup")])
def test_what_passes_alone_is_named(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    ran = _run(tmp_path, _TESTS, *arguments)
    assert ran.returncode == 0, ran.stdout
    named = ran.stdout.partition("and passed alone")[2].split("\n", 1)[1].split()
    both = ["test_some.py::test_alone", "test_some.py::test_by_chance[a@b]"]
    assert named == (both if arguments else both[1:])


def test_what_fails_again_fails(tmp_path: Path) -> None:
    ran = _run(tmp_path, _TESTS + "\ndef test_bad():\n    raise AssertionError\n")
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "passed alone" not in ran.stdout


def test_many_failures_are_no_chance(tmp_path: Path) -> None:
    many = "\n".join(f"def test_bad_{one}():\n    assert False" for one in range(MOST + 1))
    ran = _run(tmp_path, many)
    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
    assert "Once more" not in ran.stdout


def test_a_run_that_cannot_begin_is_not_repeated(tmp_path: Path) -> None:
    ran = _run(tmp_path, "import nothing_of_that_name")
    assert ran.returncode == pytest.ExitCode.INTERRUPTED
    assert "Once more" not in ran.stdout
