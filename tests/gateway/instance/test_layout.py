"""The instance's directories, its first file of settings, and its lock against real processes."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.instance import settings_general as general
from gateway.instance.layout import InstanceLocked, InvalidName, Layout
from gateway.instance.settings import read

HOLDER = """
import sys
from pathlib import Path
from gateway.instance.layout import Layout
held = Layout(Path(sys.argv[1]), "broker").lock()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path / "var", "broker")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_paths(layout: Layout, tmp_path: Path) -> None:
    top = tmp_path / "var" / "instances" / "broker"
    assert layout.settings == top / "etc" / "gateway.properties"
    assert (layout.passfile, layout.users) == (top / "etc" / "passfile", top / "etc" / "users")
    assert layout.access_control == top / "etc" / "accesscontrol.properties"
    assert (layout.tls, layout.messages) == (top / "etc" / "tls", top / "store" / "messages.db")
    assert layout.bridge("stomp") == top / "bridges" / "stomp"
    assert layout.transaction_log("links") == top / "bridges" / "links" / "txlog.links"
    assert (layout.journal, layout.log) == (top / "journal", top / "log")
    assert (layout.lock_file, layout.lib_ext) == (top / "lock", tmp_path / "var" / "lib" / "ext")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "a\n", "-x", "é", "x" * 101])
def test_names_that_are_no_directories(layout: Layout, name: str) -> None:
    with pytest.raises(InvalidName) as error:
        Layout(layout.varhome, name)
    assert repr(name) in str(error.value)
    with pytest.raises(InvalidName):
        layout.bridge(name)


def test_a_new_instance_is_private_and_runs_stomp(layout: Layout) -> None:
    assert layout.create([("imq.bridge.stomp.tls.enabled", "true")]) is True
    for path in [layout.directory, *layout.directory.rglob("*"), layout.lib_ext]:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    assert layout.settings.read_text().splitlines()[1:] == [
        "imq.bridge.enabled=true",
        "imq.bridge.activelist=stomp",
        "imq.bridge.stomp.tls.enabled=true",
    ]


def test_its_settings_can_be_read(layout: Layout) -> None:
    layout.create()
    values, warnings = read(general.SETTINGS, layout.settings)
    assert warnings == []
    assert values[general.BRIDGE_ENABLED] is True
    assert values[general.BRIDGE_ACTIVELIST] == ("stomp",)


def test_an_instance_that_exists_keeps_its_settings_and_gets_what_is_missing(
    layout: Layout,
) -> None:
    layout.create()
    layout.settings.write_text("imq.hostname=here\n")
    layout.journal.rmdir()
    assert layout.create([("a", "b")]) is False
    assert layout.settings.read_text() == "imq.hostname=here\n"
    assert layout.journal.is_dir()


def test_a_creation_that_broke_off_is_finished(layout: Layout) -> None:
    layout.etc.mkdir(parents=True)
    assert not layout.exists
    assert layout.create() is True
    assert layout.exists
    assert [path.name for path in layout.etc.iterdir() if path.is_file()] == ["gateway.properties"]


def test_a_file_in_a_directorys_place_is_told(layout: Layout) -> None:
    layout.varhome.mkdir()
    (layout.varhome / "instances").write_text("")
    with pytest.raises(OSError, match="instances"):
        layout.create()


def test_the_lock_holds_the_pid_and_refuses_a_second_holder(layout: Layout) -> None:
    with layout.lock():
        assert layout.lock_file.read_text() == f"{os.getpid()}\n"
        with pytest.raises(InstanceLocked) as error:
            layout.lock()
        assert error.value.pid == os.getpid()
        assert f"process {os.getpid()}" in str(error.value)
        assert str(layout.lock_file) in str(error.value)
    layout.lock().release()


def test_releasing_twice_does_no_harm_to_the_next_holder(layout: Layout) -> None:
    first = layout.lock()
    first.release()
    with layout.lock():
        first.release()
        with pytest.raises(InstanceLocked):
            layout.lock()
    with pytest.raises(ValueError, match="released"):
        first.write_pid()


@pytest.mark.process
def test_a_live_process_holds_the_lock_and_a_killed_one_does_not(layout: Layout) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(layout.varhome)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(InstanceLocked) as error:
            layout.lock()
        assert error.value.pid == child.pid
    finally:
        child.kill()
        child.communicate()
    assert layout.lock_file.read_text() == f"{child.pid}\n"  # stale, and no hindrance
    with layout.lock():
        assert layout.lock_file.read_text() == f"{os.getpid()}\n"


def test_other_instances_have_other_locks(layout: Layout) -> None:
    with layout.lock(), Layout(layout.varhome, "other").lock():
        pass


def test_whether_others_may_use_the_instance(layout: Layout) -> None:
    layout.create()
    assert layout.open_to_others() is None
    layout.etc.chmod(0o755)  # of no use to anybody who may not pass the directory above
    assert layout.open_to_others() is None
    layout.directory.chmod(0o750)
    assert layout.open_to_others() == 0o750
    layout.close_to_others()
    assert (mode(layout.directory), mode(layout.etc), mode(layout.tls)) == (0o700, 0o700, 0o700)
    assert layout.open_to_others() is None
