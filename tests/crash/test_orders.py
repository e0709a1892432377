"""The orders by which tests have a process killed or held at a named point while it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gateway.instance import crashpoints
from gateway.instance.crashpoints import HELD, ORDER
from tests.crash.waiting import until
from tests.gateway_process import ROOT

PASSES = """\
import sys
from gateway.instance.crashpoints import LINK_VARIABLE, asked
passed = asked(LINK_VARIABLE, "@" + sys.argv[1])
for number in range(5):
    passed("link.after-send")
    passed("xa.after-decision")
    print(number, flush=True)
"""


def test_without_an_order_nothing_happens(tmp_path: Path) -> None:
    passed = crashpoints.asked(crashpoints.LINK_VARIABLE, f"@{tmp_path}")
    passed("xa.after-decision")
    assert list(tmp_path.iterdir()) == []


def test_a_process_is_killed_at_the_nth_time_of_its_point(tmp_path: Path) -> None:
    (tmp_path / ORDER).write_text("xa.after-decision:3 kill")
    done = subprocess.run(
        [sys.executable, "-c", PASSES, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (-signal.SIGKILL, ["0", "1"])


def test_a_process_is_held_until_the_order_is_taken_away_and_then_goes_on(tmp_path: Path) -> None:
    passed = crashpoints.asked(crashpoints.LINK_VARIABLE, f"@{tmp_path}")
    (tmp_path / ORDER).write_text("xa.after-prepare-2 hold")
    done = threading.Event()

    def work() -> None:
        for _ in range(2):
            passed("xa.after-prepare-1")
            passed("xa.after-prepare-2")
        done.set()

    working = threading.Thread(target=work)
    working.start()
    until((tmp_path / HELD).exists, "it is not held")
    assert not done.is_set()
    (tmp_path / ORDER).unlink()
    working.join()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("xa.after-lunch kill", "expected one of"),
        ("xa.after-end:0 kill", "expected a number from 1"),
        ("xa.after-end", "kill or NAME:N hold"),
        ("xa.after-end dance", "kill or NAME:N hold"),
    ],
)
def test_an_order_that_is_not_understood_is_an_error(order: str, said: str, tmp_path: Path) -> None:
    passed = crashpoints.asked(crashpoints.LINK_VARIABLE, f"@{tmp_path}")
    (tmp_path / ORDER).write_text(order)
    with pytest.raises(ValueError, match=said):
        passed("xa.after-end")


def test_a_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a folder"):
        crashpoints.asked(crashpoints.LINK_VARIABLE, f"@{tmp_path / 'nowhere'}")
