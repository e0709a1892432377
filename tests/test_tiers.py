"""The tiers of tests, tried on a small project of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests import tiers

pytestmark = pytest.mark.process

ROOT: Final = Path(__file__).parents[1]
TESTS: Final = """
import socket
import subprocess
import sys

import pytest


def start():
    subprocess.run([sys.executable, "-c", ""], check=True)


def listen():
    with socket.create_server(("127.0.0.1", 0)):
        pass


@pytest.fixture
def started():
    start()


def test_plain():
    here, there = socket.socketpair()
    here.close()
    there.close()


@pytest.mark.process
def test_marked():
    start()
    listen()


@pytest.mark.brokers
def test_shared(worker_id):
    with open(f"brokers.{worker_id}", "w"):
        pass


@pytest.mark.brokers
def test_shared_too(worker_id):
    with open(f"brokers.{worker_id}", "w"):
        pass


@pytest.mark.slow
def test_slow():
    pass


@pytest.mark.long
def test_long():
    pass
"""
UNMARKED: Final = """

def test_starts():
    start()


def test_listens():
    listen()


def test_asks_for_a_fixture_that_starts(started):
    pass
"""


def run(folder: Path, *arguments: str) -> tuple[set[str], set[str], str]:
    """Run the project's tests.

    :returns: the names of those that passed, of those that did not, and all that was printed.
    """
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-rA", "-q", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    told = [
        set(re.findall(rf"^{how} \S+::(\w+)", done.stdout, re.MULTILINE))
        for how in ("PASSED", "(?:FAILED|ERROR)")
    ]
    return told[0], told[1], done.stdout + done.stderr


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_tried.py").write_text(TESTS)
    return tmp_path


@pytest.mark.parametrize("workers", [[], ["-n", "2", "--dist", "loadgroup"]])
def test_bare_pytest_runs_what_needs_nothing(project: Path, workers: list[str]) -> None:
    passed, failed, text = run(project, *workers)
    assert (passed, failed) == ({"test_plain"}, set()), text


def test_a_path_names_all_but_the_long_ones(project: Path) -> None:
    passed, failed, text = run(project, "test_tried.py", "-n", "2", "--dist", "loadgroup")
    expected = {"test_plain", "test_marked", "test_shared", "test_shared_too", "test_slow"}
    assert (passed, failed) == (expected, set()), text
    assert len(list(project.glob("brokers.*"))) == 1, "what is shared is shared by one worker"


def test_long_names_the_long_ones_too(project: Path) -> None:
    passed, failed, text = run(project, "test_tried.py", "--long")
    assert "test_long" in passed, text
    assert failed == set()


def test_who_starts_a_process_or_opens_a_port_must_say_so(project: Path) -> None:
    (project / "test_tried.py").write_text(TESTS + UNMARKED)
    passed, failed, text = run(project)
    expected = {"test_starts", "test_listens", "test_asks_for_a_fixture_that_starts"}
    assert (passed, failed) == ({"test_plain"}, expected), text
    assert "test_starts starts a process (subprocess.Popen); mark it pytest.mark.process" in text
    assert "test_listens opens a port (socket.bind ('127.0.0.1', 0))" in text


def test_a_folder_s_mark_is_that_of_all_below_it() -> None:
    assert tiers.folder_mark("tests/crash/test_disk.py") == tiers.PROCESS
    assert tiers.folder_mark("tests/crash") == tiers.PROCESS
    assert tiers.folder_mark("tests/gateway/broker/test_queue.py") is None


@pytest.mark.parametrize(
    ("line", "mark"),
    [
        ("pytestmark = pytest.mark.slow", tiers.SLOW),
        ('pytestmark = pytest.mark.usefixtures("deployment")', None),
        ("pytestmark = pytest.mark.unknown", None),
        ("    pytestmark = pytest.mark.slow", None),
    ],
)
def test_a_file_s_mark_is_read_without_an_import(line: str, mark: str | None) -> None:
    assert tiers.file_mark(f"import pytest\n\n{line}\n") == mark


def test_a_file_with_a_mark_is_not_imported(project: Path) -> None:
    source = "import pytest\npytestmark = pytest.mark.process\nraise ImportError\n"
    (project / "test_marked.py").write_text(source)
    passed, failed, text = run(project)
    assert (passed, failed) == ({"test_plain"}, set()), text


def test_the_folders_that_have_a_mark_are_there() -> None:
    assert [folder for folder in tiers.FOLDERS if not (ROOT / folder).is_dir()] == []
