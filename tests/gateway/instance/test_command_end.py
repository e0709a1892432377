"""How commands end whose output nothing reads, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.gateway_process import ROOT

pytestmark = pytest.mark.process

COMMANDS: Final = {
    "imqcmd": ("-m", "gateway.admin.cli.imqcmd", "-h"),
    "imqbridgemgr": ("-m", "gateway.admin.cli.imqbridgemgr", "-h"),
    "imqusermgr": ("-m", "gateway.broker.security.usermgr", "--help"),
    "imqdbmgr": ("-m", "gateway.dbmgr", "--help"),
    "imqkeytool": ("-m", "certs.command", "--help"),
    "gateway-pipeline": ("-m", "pipeline", "--help"),
    "stomp-gateway": ("-c", "from gateway.command import main; main()", "--help"),
}
#: It was stopped by the signal.
STOPPED: Final = -signal.SIGPIPE


@pytest.mark.parametrize(
    ("name", "unbuffered", "code"),
    [
        *((name, "1", STOPPED) for name in COMMANDS),
        # At the end of the command all has been done; in its middle not.
        ("imqcmd", "", 0),
        ("stomp-gateway", "", 0),
        # These write each text at once.
        ("imqusermgr", "", STOPPED),
        ("imqkeytool", "", STOPPED),
        ("gateway-pipeline", "", STOPPED),
    ],
)
def test_nothing_reads_on(name: str, unbuffered: str, code: int) -> None:
    assert _unread(name, unbuffered) == (code, "")


@pytest.mark.parametrize("name", ["imqcmd", "imqusermgr", "imqkeytool", "gateway-pipeline"])
def test_a_caller_that_blocks_the_signal_sees_the_same_in_the_exit_code(name: str) -> None:
    """The command inherits the signals that its caller has blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
    try:
        assert _unread(name, "1") == (128 + signal.SIGPIPE, "")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_ctrl_c_ends_a_command_that_waits(tmp_path: Path) -> None:
    passfile = tmp_path / "passfile"
    os.mkfifo(passfile)
    arguments = ["-m", "certs.command", "server", "--dir", str(tmp_path), "--passfile"]
    command = [sys.executable, *arguments, str(passfile)]
    waiting = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        # What a shell starts in the background ignores it, and so would its children.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    # It reads there by now, for what does not come.
    with passfile.open("w"):
        waiting.send_signal(signal.SIGINT)
        _, errors = waiting.communicate(timeout=60)
    assert (waiting.returncode, errors.strip()) == (1, "imqkeytool: aborted")


def _unread(name: str, unbuffered: str) -> tuple[int, str]:
    """Run a command; behind ``head`` its output goes unread later.

    :returns: its exit status and standard error.
    """
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, *COMMANDS[name]],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writing)
    return done.returncode, done.stderr
