"""Contexts: a broker by its name, for ``imqcmd`` and ``imqbridgemgr``."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet.threads import deferToThread

from gateway.admin.cli import imqbridgemgr, imqcmd
from gateway.admin.cli.contexts import VARIABLE
from tests.gateway.admin.administered import HOST, Live
from tests.gateway.admin.asking import ADMIN
from tests.on_reactor import on_reactor

#: Runs ``imqcmd``, which must end with the code, and returns what it prints and complains of.
Imqcmd = Callable[..., str]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of this test's user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "config/stomp-gateway/contexts.toml"


@pytest.fixture
def run(file: Path, capsys: pytest.CaptureFixture[str]) -> Imqcmd:
    def run(*arguments: str, code: int = 0) -> str:
        assert imqcmd.run(arguments) == code
        return "".join(capsys.readouterr())

    return run


def test_they_are_kept_for_their_owner_alone(run: Imqcmd, file: Path) -> None:
    run("context", "add", "test", "-b", "h:1", "-u", "otto", "-passfile", "pf", "-secure")
    run("context", "add", "other")
    run("context", "use", "test")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    listed = json.loads(run("context", "list", "--json"))
    assert listed["current"] == "test"
    assert [*listed["contexts"]] == ["other", "test"]
    assert listed["contexts"]["test"] == {
        "broker": "h:1",
        "user": "otto",
        "passfile": str(Path("pf").absolute()),
        "cacert": "",
        "secure": True,
    }
    assert "*       test     h:1" in run("context", "list")
    run("context", "remove", "test")
    assert json.loads(run("context", "list", "--json"))["current"] == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add",), "the context's name is missing: context add NAME"),
        (("add", "test"), "there is a context test already; remove it first"),
        (("add", "none"), "'none' can be no context's name"),
        (("add", "a b"), "'a b' can be no context's name"),
        (("add", "new", "-b", "x:y"), "-b 'x:y' is no broker"),
        (("add", "new", "-p", "secret"), "-p is refused"),
        (("use", "new"), "there is no context new; expected one of test"),
        (("remove", "new"), "there is no context new; expected one of test"),
    ],
)
def test_what_is_wrong_is_said(run: Imqcmd, arguments: tuple[str, ...], said: str) -> None:
    run("context", "add", "test")
    assert said in run("context", *arguments, code=1)


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("[context.test]\npassword = 'x'\n", 0o600, "expected contexts"),
        ("[context.test]\nbroker = 5\n", 0o600, "context.test.broker: 5"),
        ("context", 0o600, "expected contexts"),
        ("[context.test]\n", 0o602, "others can write it"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_refused(
    run: Imqcmd, file: Path, text: str, mode: int, said: str
) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(mode)
    assert said in run("list", "dst", code=1)


@on_reactor
async def test_the_chosen_one_is_used_unless_a_broker_is_named(
    imq: Live, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(*arguments: str, code: int = 0) -> str:
        imq.capsys.readouterr()
        assert await deferToThread(imqcmd.run, arguments) == code
        return "".join(imq.capsys.readouterr())

    await run("context", "add", "here", *imq.options)
    await run("context", "add", "gone", "-b", f"{HOST}:1", "-u", "otto")
    assert "mq.sys.dmq" in await run("list", "dst", "--context", "here")
    assert f"no broker answers at {HOST}:1" in await run("list", "dst", "-context=gone", code=1)
    assert "no context away" in await run("list", "dst", "-context", "away", code=1)
    # The command line's own options win.
    assert "mq.sys.dmq" in await run("list", "dst", "-context", "gone", *imq.options)

    monkeypatch.setenv(VARIABLE, "here")
    assert "mq.sys.dmq" in await run("list", "dst")
    # Its password is for that broker only.
    said = await run("list", "dst", "-b", f"localhost:{imq.port}", code=1)
    assert "the administrator's username is not given" in said

    monkeypatch.delenv(VARIABLE)
    await run("context", "use", "here")
    assert "mq.sys.dmq" in await run("list", "dst")
    monkeypatch.setenv(VARIABLE, "none")
    assert "no broker answers at localhost:7676" in await run("list", "dst", code=1)

    # The same contexts are imqbridgemgr's.
    (imq.folder / "passfile").write_text(f"imq.imqbridgemgr.password={ADMIN[1]}\n")
    monkeypatch.delenv(VARIABLE)
    assert await deferToThread(imqbridgemgr.run, ["list", "bridge"]) == 1
    assert f"{HOST}    {imq.port}" in imq.capsys.readouterr().out
