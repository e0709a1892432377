"""Users and access rules are those of the broker at each owner."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.client import Client, Refused
from tests.crash.waiting import until
from tests.gateway_process import ROOT
from tests.takeover.machines import Machine, Machines
from tests.takeover.test_takeover import create_tables


@pytest.fixture
def machines(tmp_path: Path, postgresql_database: str) -> Iterator[Machines]:
    create_tables(postgresql_database)
    with Machines(tmp_path, postgresql_database, "first", "second") as machines:
        yield machines


def add_user(machine: Machine, name: str) -> None:
    passfile = machine.varhome / "new.passfile"
    passfile.write_text(f"imq.imqusermgr.password={name}'s\n")
    passfile.chmod(0o600)
    command = "from gateway.broker.security.usermgr import main; main()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", command, "add", "-u", name, "-g", "user"),
            *("-passfile", str(passfile), "--varhome", str(machine.varhome), "-i", "test"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def users(machine: Machine) -> str:
    return (machine.directory / "etc" / "users").read_text()


def may_connect(machine: Machine, name: str) -> bool:
    try:
        with Client(machine.port, login=name, passcode=f"{name}'s"):
            return True
    except Refused:
        return False


def test_what_a_machine_had_before_is_kept_aside(
    postgresql_database: str, tmp_path: Path, machines: Machines
) -> None:
    third = Machine(tmp_path, "third", postgresql_database)
    try:
        third.begin()
        assert users(third) == users(machines.all[0])
        assert (third.directory / "etc" / "users.replaced").exists()
        assert "passwords in the passfile must be those of the database" in third.log
    finally:
        third.kill()


def test_users_of_one_machine_are_those_of_the_next_owner(machines: Machines) -> None:
    first, second = machines.all
    assert users(first) == users(second)
    add_user(first, "ada")
    first.signal(signal.SIGHUP)
    until(lambda: "ada:" in users(second), lambda: f"{users(second)}\n{machines.told()}")
    assert may_connect(first, "ada")
    # The one that stands by may be where an operator is.
    add_user(second, "bob")
    second.signal(signal.SIGHUP)
    until(lambda: may_connect(first, "bob"), machines.told)
    rules = second.directory / "etc" / "accesscontrol.properties"
    rules.write_text(rules.read_text() + "connection.NORMAL.deny.user=ada\n")
    second.signal(signal.SIGHUP)
    until(lambda: not may_connect(first, "ada"), machines.told)
    first.kill()
    machines.until_taken_over(first)
    assert may_connect(second, "bob")
    assert not may_connect(second, "ada")
