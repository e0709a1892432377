"""``imqusermgr`` as an operator types it."""

import stat
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from gateway.broker.security import usermgr
from gateway.broker.security.users import User, read_users, write_users
from gateway.configuration import configure
from gateway.instance.layout import Layout
from gateway.instance.passfile import read
from gateway.instance.settings_general import BRIDGE_ADMIN_PASSWORD


class Tool:
    """The command on one instance, with answers for its prompts."""

    def __init__(
        self, layout: Layout, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.layout = layout
        self.answers: list[str] = []
        self._capsys = capsys
        monkeypatch.setattr("click.termui.hidden_prompt_func", lambda prompt: self.answers.pop(0))
        monkeypatch.setattr("click.termui.visible_prompt_func", lambda prompt: self.answers.pop(0))
        monkeypatch.delenv("IMQ_VARHOME", raising=False)

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        code = usermgr.run(
            [*arguments, "-varhome", str(self.layout.varhome), "-i", self.layout.instance]
        )
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    @property
    def users(self) -> dict[str, User]:
        return read_users(self.layout.users)


@pytest.fixture
def tool(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tool:
    layout = Layout(tmp_path, "one")
    layout.create()
    write_users(layout.users, [])
    return Tool(layout, capsys, monkeypatch)


@pytest.fixture
def passfile(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.touch(0o600)
    path.write_text("imq.imqusermgr.password=sesame\n")
    return path


def matches(user: User, password: str) -> bool:
    return PasswordHasher().verify(user.hash, password)


def test_add_asks_for_the_password_twice(tool: Tool) -> None:
    tool.answers = ["sesame", "sesame"]
    code, out, err = tool("add", "-u", "alice", "-g", "user, staff")
    assert code == 0
    assert "User 'alice' is added." in out
    assert "sesame" not in out + err
    alice = tool.users["alice"]
    assert (alice.groups, alice.active, alice.loopback) == (
        frozenset({"user", "staff"}),
        True,
        False,
    )
    assert matches(alice, "sesame")
    assert tool.answers == []


def test_add_takes_the_password_from_a_passfile(tool: Tool, passfile: Path) -> None:
    assert tool("add", "-u", "alice", "-passfile", str(passfile), "-s") == (0, "", "")
    assert matches(tool.users["alice"], "sesame")
    assert tool.users["alice"].groups == {"user"}
    passfile.write_text("imq.other=x\n")
    code, out, err = tool("add", "-u", "bob", "--passfile", str(passfile))
    assert (code, out, err) == (1, "", f"imqusermgr: {passfile} has no imq.imqusermgr.password\n")


@pytest.mark.parametrize("given", [["-p", "sesame"], ["-psesame"], ["-p"], ["-p", "sesame", "-f"]])
@pytest.mark.parametrize("what", ["add", "update"])
def test_a_password_on_the_command_line_is_refused_and_not_repeated(
    tool: Tool, what: str, given: list[str]
) -> None:
    if what == "add" and "-f" in given:
        given = given[:-1]
    code, out, err = tool(what, "-u", "alice", *given)
    assert (code, out) == (2, "")
    assert err.startswith("imqusermgr: -p is refused: ")
    assert err.count("\n") == 1
    assert "sesame" not in err
    assert tool.users == {}


def test_add_inactive_and_confined(tool: Tool, passfile: Path) -> None:
    assert (
        tool("add", "-u", "alice", "-a", "false", "--loopback", "-passfile", str(passfile))[0] == 0
    )
    assert (tool.users["alice"].active, tool.users["alice"].loopback) == (False, True)


def test_add_refuses_a_user_who_exists_before_it_asks(tool: Tool, passfile: Path) -> None:
    tool("add", "-u", "alice", "-passfile", str(passfile))
    assert tool("add", "-u", "alice") == (1, "", "imqusermgr: user 'alice' exists\n")


def test_update(tool: Tool, passfile: Path) -> None:
    tool("add", "-u", "alice", "-passfile", str(passfile))
    before = tool.users["alice"]
    assert tool("update", "-u", "alice", "-g", "staff,admin")[0] == 0
    assert tool.users["alice"] == User("alice", frozenset({"staff", "admin"}), before.hash)
    assert tool("update", "-u", "alice", "-a", "inactive", "--loopback")[0] == 0
    assert tool.users["alice"] == User(
        "alice", frozenset({"staff", "admin"}), before.hash, False, True
    )
    assert tool("update", "-u", "alice", "-a", "true", "--any")[0] == 0
    assert tool.users["alice"] == User("alice", frozenset({"staff", "admin"}), before.hash)
    tool.answers = ["simsim", "simsim"]
    assert tool("update", "-u", "alice")[0] == 0
    assert matches(tool.users["alice"], "simsim")
    assert tool("update", "-u", "alice", "-passfile", str(passfile), "-f", "-a", "false")[0] == 0
    assert matches(tool.users["alice"], "sesame")
    assert not tool.users["alice"].active
    assert tool("update", "-u", "bob", "-a", "true") == (
        1,
        "",
        "imqusermgr: there is no user 'bob'\n",
    )


def test_delete_asks_unless_forced(tool: Tool, passfile: Path) -> None:
    for name in ("alice", "bob", "carol"):
        tool("add", "-u", name, "-passfile", str(passfile))
    tool.answers = ["n"]
    assert tool("delete", "-u", "alice")[0] == 1
    assert "alice" in tool.users
    tool.answers = ["y"]
    assert tool("delete", "-u", "alice")[0] == 0
    assert tool("delete", "-u", "bob", "-f", "-s")[0:2] == (0, "")
    assert list(tool.users) == ["carol"]
    assert tool("delete", "-u", "alice") == (1, "", "imqusermgr: there is no user 'alice'\n")


def test_list(tool: Tool, passfile: Path) -> None:
    tool("add", "-u", "alice", "-g", "user,admin", "-passfile", str(passfile))
    tool("add", "-u", "Max Power", "-a", "false", "--loopback", "-passfile", str(passfile))
    code, out, err = tool("list")
    assert (code, err) == (0, "")
    assert out == (
        "USER       GROUPS      STATE     FROM\nalice      admin,user  active    any\nMax Power  user        inactive  loopback\n"
    )
    assert tool("list", "-u", "alice")[1].splitlines()[1:] == ["alice  admin,user  active  any"]
    assert tool("list", "-u", "bob") == (1, "", "imqusermgr: there is no user 'bob'\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["add"],
        ["add", "-u", "a:b"],
        ["add", "-u", "alice", "-g", "a,,b"],
        ["add", "-u", "alice", "-g", "*"],
        ["add", "-u", "alice", "-a", "maybe"],
        ["remove", "-u", "alice"],
        ["list", "--bogus"],
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(tool: Tool, arguments: list[str]) -> None:
    code, out, err = tool(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("imqusermgr: ")
    assert tool.users == {}


def test_an_instance_that_has_run_and_lost_its_users_gets_no_others(tool: Tool) -> None:
    tool.layout.users.unlink()
    tool.layout.lock_file.touch()
    for arguments in (
        ["list"],
        ["add", "-u", "alice"],
        ["update", "-u", "alice"],
        ["delete", "-u", "alice"],
    ):
        code, out, err = tool(*arguments)
        assert (code, out) == (1, "")
        assert f"{tool.layout.users} is gone from an instance that has run: put it back" in err
        assert not tool.layout.users.exists()


def test_a_damaged_users_file_is_left_alone(tool: Tool, passfile: Path) -> None:
    tool.layout.users.write_text("version=StompGatewayUsers/1\nalice\n")
    code, out, err = tool("add", "-u", "bob", "-passfile", str(passfile))
    assert (code, out) == (1, "")
    assert err.startswith(f"imqusermgr: {tool.layout.users}:2: expected 5 fields")
    assert tool.layout.users.read_text() == "version=StompGatewayUsers/1\nalice\n"


def test_which_instance(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tool: Tool, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert usermgr.run(["list", "-i", "one"]) == 1
    assert f"there is no instance {tmp_path}/var/instances/one yet" in capsys.readouterr().err
    monkeypatch.setenv("IMQ_VARHOME", str(tool.layout.varhome))
    assert usermgr.run(["list", "-i", "one"]) == 0
    assert usermgr.run(["list", "-i", "../one"]) == 1


@pytest.fixture
def new(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Tool:
    """The command on an instance that nobody has started yet."""
    return Tool(Layout(tmp_path / "var", "new"), capsys, monkeypatch)


def test_before_the_first_start_users_are_made_as_that_would_make_them(
    new: Tool, passfile: Path
) -> None:
    code, out, err = new("add", "-u", "alice", "-passfile", str(passfile))
    assert (code, err, list(new.users)) == (0, "", ["admin", "guest", "alice"])
    kept = read(new.layout.passfile)["imq.bridge.admin.password"]
    assert matches(new.users["admin"], kept)
    assert matches(new.users["guest"], "guest")
    assert new.users["guest"].loopback
    first, admin, guest, added = out.splitlines()
    assert first == f"New instance {new.layout.directory}"
    assert str(new.layout.passfile) in admin
    assert kept not in out
    assert "guest" in guest
    assert "alice" in added
    for path in (new.layout.varhome, *new.layout.varhome.rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path

    configuration = configure(new.layout.varhome, "new", None, [])
    assert list(new.users) == ["admin", "guest", "alice"]
    assert kept not in "".join(configuration.notes)
    assert (configuration.settings[BRIDGE_ADMIN_PASSWORD], configuration.warnings) == (kept, ())
    code, out, err = new("delete", "-u", "guest", "-f")
    assert (code, out.count("\n"), err) == (0, 1, "")


def test_before_the_first_start_there_is_nothing_to_list(new: Tool) -> None:
    code, out, err = new("list")
    assert (code, out) == (1, "")
    assert "first start" in err
    assert not new.layout.varhome.exists()


def test_settings_may_be_there_before_the_first_users(new: Tool, passfile: Path) -> None:
    new.layout.create()
    code, out, err = new("list")
    assert (code, out) == (1, "")
    assert "has no users yet; its first start, or 'add', makes the first ones" in err
    settings = new.layout.settings.read_bytes()
    code, out, err = new("add", "-u", "alice", "-passfile", str(passfile))
    assert (code, err, list(new.users)) == (0, "", ["admin", "guest", "alice"])
    assert "The gateway's first start uses it, and makes the rest of the instance." in out
    assert new.layout.access_control.exists()
    assert new.layout.settings.read_bytes() == settings
    configuration = configure(new.layout.varhome, "new", None, [])
    assert (list(new.users), configuration.warnings) == (["admin", "guest", "alice"], ())


@pytest.mark.parametrize("what", ["update", "delete", "add"])
def test_what_is_refused_makes_no_instance(new: Tool, passfile: Path, what: str) -> None:
    name = "admin" if what == "add" else "alice"
    code, out, err = new(what, "-u", name)
    assert (code, out) == (1, "")
    assert f"instance {new.layout.directory} is new, and its first users are admin and guest" in err
    passfile.write_text("imq.other=x\n")
    code, out, err = new("add", "-u", "alice", "-passfile", str(passfile))
    assert (code, out) == (1, "")
    assert not new.layout.varhome.exists()


def test_a_new_instance_is_not_made_for_an_administrator_who_stays(new: Tool) -> None:
    code, out, err = new("delete", "-u", "admin")
    assert (code, out) == (1, "")
    assert "user 'admin' is the only active one in group admin; -f deletes it all the same" in err
    new.answers = ["n"]
    assert new("delete", "-u", "guest")[0] == 1
    assert new.answers == []
    assert not new.layout.varhome.exists()


def test_the_only_administrator_is_deleted_by_force_only_and_not_without_a_word(
    new: Tool, passfile: Path
) -> None:
    new("add", "-u", "alice", "-passfile", str(passfile))
    new.answers = ["y"]
    code, out, err = new("delete", "-u", "admin")
    assert (code, out) == (1, "")
    assert (
        err
        == "imqusermgr: user 'admin' is the only active one in group admin; -f deletes it all the same\n"
    )
    assert "admin" in new.users
    code, out, err = new("delete", "-u", "admin", "-f")
    assert (code, out.startswith("User 'admin' is deleted.")) == (0, True)
    assert err == "imqusermgr: warning: no active user is in group admin now\n"


def test_one_of_two_administrators_goes_as_any_user(new: Tool, passfile: Path) -> None:
    new("add", "-u", "alice", "-g", "admin", "-passfile", str(passfile))
    new.answers = ["y"]
    code, _, err = new("delete", "-u", "admin")
    assert (code, "warning" in err) == (0, False)
    for change in (["-g", "users"], ["-a", "false"]):
        code, _, err = new("update", "-u", "alice", *change)
        assert (code, err) == (0, "imqusermgr: warning: no active user is in group admin now\n")
        assert new("update", "-u", "alice", "-g", "admin", "-a", "true")[2] == ""
