"""The passfile: who may read it, what it holds, and that a crash never halves it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gateway.instance import passfile
from gateway.instance import settings_general as general
from gateway.instance.layout import Layout
from gateway.instance.passfile import PassfileError
from gateway.instance.settings import Severity
from gateway.instance.settings import read as read_settings


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "passfile"
    path.write_text("# secrets\nimq.keystore.password=hunter2\nimq.imqcmd.password = a=b c \n")
    path.chmod(0o600)
    return path


def test_reads_names_and_values(path: Path) -> None:
    assert passfile.read(path) == {
        "imq.keystore.password": "hunter2",
        "imq.imqcmd.password": "a=b c ",
    }


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666])
def test_a_file_that_others_may_open_is_refused(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(PassfileError) as error:
        passfile.read(path)
    assert str(path) in str(error.value)
    assert f"{mode:04o}" in str(error.value)
    assert "chmod 600" in str(error.value)
    assert "hunter2" not in str(error.value)


def test_owner_only_is_enough_even_without_writing(path: Path) -> None:
    path.chmod(0o400)
    assert passfile.read(path)["imq.keystore.password"] == "hunter2"


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PassfileError, match="No such file"):
        passfile.read(tmp_path / "missing")
    with pytest.raises(PassfileError, match="regular file"):
        passfile.read(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(PassfileError, match="regular file"):
        passfile.read(tmp_path / "pipe")


@pytest.mark.parametrize("line", ["=hunter2", "imq.x=hunter2\\u00"])
def test_a_line_that_is_none_is_told_by_number_and_not_by_content(path: Path, line: str) -> None:
    path.write_text(f"\n{line}\n")
    with pytest.raises(PassfileError) as error:
        passfile.read(path)
    assert error.value.line == 2
    assert "hunter2" not in str(error.value)


def test_a_huge_file_is_refused(path: Path) -> None:
    path.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(PassfileError, match="octets"):
        passfile.read(path)


def test_updates_keep_the_rest_and_the_permissions(path: Path) -> None:
    passfile.update(
        path,
        {
            "imq.keystore.password": " new = \\é ",
            "imq.imqcmd.password": None,
            "imq.bridge.admin.password": "x",
        },
    )
    assert passfile.read(path) == {
        "imq.keystore.password": " new = \\é ",
        "imq.bridge.admin.password": "x",
    }
    assert path.read_text().startswith("# secrets\n")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["passfile"]


@pytest.mark.parametrize("umask", [0, 0o777])
def test_a_missing_file_is_made_for_its_owner_alone(tmp_path: Path, umask: int) -> None:
    path = tmp_path / "new"
    before = os.umask(umask)
    try:
        passfile.update(path, {"a": "b"})
    finally:
        os.umask(before)
    assert passfile.read(path) == {"a": "b"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_others_may_read_is_not_updated(path: Path) -> None:
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(PassfileError):
        passfile.update(path, {"a": "b"})
    assert path.read_bytes() == before


def test_an_update_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PassfileError, match="No space left"):
        passfile.update(path, {"a": "b"})
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["passfile"]


def test_passwords_stand_over_the_settings_file_and_under_the_command_line(
    path: Path, tmp_path: Path
) -> None:
    file = tmp_path / "gateway.properties"
    file.write_text("imq.keystore.password=old\n")
    values, _ = read_settings(general.SETTINGS, file)
    applied = passfile.applied(values, path)
    assert applied[general.KEYSTORE_PASSWORD] == "hunter2"
    assert applied.source(general.KEYSTORE_PASSWORD) == str(path)
    values, _ = read_settings(general.SETTINGS, file, ["imq.keystore.password=mine"])
    assert passfile.applied(values, path)[general.KEYSTORE_PASSWORD] == "mine"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], None),
        (["imq.passfile.enabled=true"], "var/instances/broker/etc/passfile"),
        (
            [
                "imq.passfile.enabled=true",
                "imq.passfile.dirpath=/run/secrets",
                "imq.passfile.name=mq",
            ],
            "/run/secrets/mq",
        ),
    ],
)
def test_where_the_passfile_is(tmp_path: Path, given: list[str], expected: str | None) -> None:
    values, _ = read_settings(general.SETTINGS, None, given)
    found = passfile.location(values, Layout(tmp_path / "var", "broker"))
    assert found == (None if expected is None else tmp_path / expected)


def test_names_that_nobody_looks_for_are_warned_of(path: Path) -> None:
    settings, _ = read_settings(general.SETTINGS, None)
    assert passfile.unknown(settings, path) == []
    path.write_text(
        "imq.bridge.admin.password=x\nimq.keystore.passwordd=hunter2\nimq.imqusermgr.pasword=hunter2\n"
        "imq.persist.jdbc.password=hunter2\nsecret=hunter2\nimq.imqusermgr.password=y\nimq.imqbridgemgr.password=z\n"
    )
    warnings = passfile.unknown(settings, path)
    assert [(problem.line, problem.nearest) for problem in warnings] == [
        (2, "imq.keystore.password"),
        (3, "imq.imqusermgr.password"),
        (4, ""),
        (5, ""),
    ]
    assert "of the original has none" in warnings[2].expected
    for problem in warnings:
        assert problem.severity is Severity.WARNING
        assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    "line",
    [
        "hunter2",
        "imq.keystore.passwordhunter2",
        "imq.keystore.password.hunter2",
        "imq.keystore.password-hunter2",
        "imq.persist.jdbc.passwordhunter2",
        "imq.persist.jdbc.hunter2",
        "imq.persist.jdbc.mysql.property.hunter2",
        "imq.bridge.b.hunter2",
    ],
)
def test_a_password_without_its_equals_sign_is_not_shown(path: Path, line: str) -> None:
    settings, _ = read_settings(general.SETTINGS, None)
    path.write_text(f"{line}\n")
    [warning] = passfile.unknown(settings, path)
    assert warning.line == 1
    assert "hunter2" not in f"{warning!r}{warning}"
