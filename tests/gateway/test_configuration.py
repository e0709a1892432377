"""A new instance and its settings, as the command line and the files have them, before anything is
started.
"""

from __future__ import annotations

import stat
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs.keystore import KeyStore
from gateway.broker.security.passcodes import hash_passcode
from gateway.broker.security.users import User, read_users, write_users
from gateway.configuration import Configuration, configure
from gateway.exit_codes import StartRefused
from gateway.instance.passfile import read, update
from gateway.instance.settings_general import KEYSTORE_PASSWORD, PASSFILE_ENABLED
from gateway.tap import Options


def configured(varhome: Path, *overrides: str) -> Configuration:
    return configure(varhome, "one", None, overrides)


def test_a_new_instance_is_its_owners_alone(tmp_path: Path) -> None:
    varhome = tmp_path / "var"
    assert configured(varhome).warnings == ()
    paths = [varhome, *varhome.rglob("*")]
    assert len(paths) > 10
    for path in paths:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_what_was_there_before_the_instance_is_closed_to_others(tmp_path: Path) -> None:
    tls = tmp_path / "instances" / "one" / "etc" / "tls"
    tls.mkdir(0o755, parents=True)
    assert configured(tmp_path).warnings == ()
    for path in (tls, tls.parent, tls.parent.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_an_instance_that_was_opened_to_others_is_warned_of_and_left_so(tmp_path: Path) -> None:
    directory = configured(tmp_path).layout.directory
    directory.chmod(0o750)
    [warning] = configured(tmp_path).warnings
    assert warning.startswith(
        f"{directory}: others than its owner may use what is below it, with mode 0750"
    )
    assert stat.S_IMODE(directory.stat().st_mode) == 0o750


def test_users_that_came_without_a_passfile_are_taken_as_they_are(tmp_path: Path) -> None:
    etc = tmp_path / "instances" / "one" / "etc"
    etc.mkdir(0o700, parents=True)
    write_users(etc / "users", [User("alice", frozenset({"admin"}), hash_passcode("sesame"))])
    before = (etc / "users").read_bytes()
    configuration = configured(tmp_path)
    assert (etc / "users").read_bytes() == before
    assert not configuration.settings[PASSFILE_ENABLED]
    assert configuration.notes[1] == f"its users are those that {etc}/users had already"


def test_settings_that_came_alone_get_users_and_rules(tmp_path: Path) -> None:
    etc = tmp_path / "instances" / "one" / "etc"
    etc.mkdir(0o700, parents=True)
    settings = etc / "gateway.properties"
    settings.write_text("imq.bridge.stomp.port=1\n")
    settings.chmod(0o600)
    with pytest.raises(StartRefused):
        configured(tmp_path)
    assert [*etc.iterdir()] == [settings]
    settings.write_text("imq.bridge.enabled=true\n")
    configuration = configured(tmp_path)
    layout = configuration.layout
    assert configuration.made_admin
    assert configuration.notes[0] == f"the password of user 'admin' is in {layout.passfile}"
    assert [*read_users(layout.users)] == ["admin", "guest"]
    assert layout.access_control.exists()
    assert layout.store.is_dir()
    assert settings.read_text() == "imq.bridge.enabled=true\n"
    assert configured(tmp_path).notes == ()


def test_users_of_an_instance_that_has_run_are_not_made_again(tmp_path: Path) -> None:
    layout = configured(tmp_path).layout
    layout.lock().release()
    layout.users.unlink()
    assert not configured(tmp_path).made_admin
    assert not layout.users.exists()


def test_a_start_that_was_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    layout = configured(tmp_path).layout
    password = read(layout.passfile)["imq.bridge.admin.password"]
    layout.settings.unlink()
    layout.users.unlink()
    assert configured(tmp_path).made_admin
    assert read(layout.passfile)["imq.bridge.admin.password"] == password


def test_passwords_in_the_wrong_place_are_warned_of(tmp_path: Path) -> None:
    layout = configured(tmp_path).layout
    update(layout.passfile, {"imq.keystore.passwordd": "hunter2"})
    configuration = configured(tmp_path, "imq.keystore.password=hunter2")
    assert configuration.settings[KEYSTORE_PASSWORD] == "hunter2"
    on_command_line, in_passfile = configuration.warnings
    assert on_command_line.startswith("-D: imq.keystore.password=")
    assert f"{layout.passfile}:" in in_passfile
    assert in_passfile.endswith("the nearest known name is imq.keystore.password")
    assert "hunter2" not in on_command_line + in_passfile


def test_a_setting_for_a_pattern_of_destinations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        StartRefused, match=r"imq\.destination\.queue\.a\.\*: expected the name of one queue"
    ):
        configured(tmp_path, "imq.destination.queue.a.*.maxNumMsgs=1")


def test_another_database_is_not_offered(tmp_path: Path) -> None:
    with pytest.raises(StartRefused, match=r"expected sqlite, memory, jdbc or file$"):
        configured(tmp_path, "imq.persist.store=oracle")
    with pytest.raises(StartRefused, match=r"dbVendor=mysql: expected postgresql$"):
        configured(tmp_path, "imq.persist.store=jdbc", "imq.persist.jdbc.dbVendor=mysql")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_warnings_are_shown_to_whoever_starts_it(tmp_path: Path) -> None:
    made = subprocess.run(
        [
            sys.executable,
            "-c",
            "from gateway.tap import Options, makeService; import sys; o = Options(); o.parseOptions(sys.argv[1:]); makeService(o)",
            *(
                "--varhome",
                str(tmp_path),
                "-D",
                "imq.bridge.admin.password=hunter2",
                "-Dimq.accesscontrol.enabled=false",
            ),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert made.stdout.startswith("new instance ")
    lines = made.stderr.splitlines()
    assert [line.split("=")[0] for line in lines] == [
        "warning: -D: imq.accesscontrol.enabled",
        "warning: -D: imq.bridge.admin.password",
    ]
    assert "hunter2" not in made.stderr


def test_the_options_show_how_to_call_it() -> None:
    text = str(Options())
    assert text.startswith("Usage: stomp-gateway [--varhome DIR]")
    assert "-D, --define=" in text
    options = Options()
    options.parseOptions(["-Da=1", "-D", "b=2", "--define", "c=3", "-varhome", "/x"])
    assert (options.overrides, str(options.varhome)) == (["a=1", "b=2", "c=3"], "/x")


@pytest.mark.process
def test_what_is_found_while_the_gateway_is_made_is_shown_and_kept_for_the_log(
    tmp_path: Path,
) -> None:
    """Its log is not open yet then."""
    tls = configured(tmp_path).layout.tls
    store = KeyStore(tls)
    now = datetime.now(UTC)
    store.create_authority("Test CA", now)
    store.issue_server("here", now, ["localhost"], [])
    store.revoke("server", now)
    program = (
        "from gateway.tap import Options, makeService; import sys; o = Options(); o.parseOptions(sys.argv[1:]); "
        "print(makeService(o).configuration.passing_warnings[0])"
    )
    place = ("--varhome", str(tmp_path), "--instance", "one", "-Dimq.bridge.stomp.tls.enabled=true")
    made = subprocess.run(
        [sys.executable, "-c", program, *place], capture_output=True, text=True, check=True
    )
    assert made.stdout.startswith(f"certificate {tls}/server.pem is revoked by {tls}/crl.pem")
    assert made.stderr == f"warning: {made.stdout}"
