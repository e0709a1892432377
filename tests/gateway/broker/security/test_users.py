"""The users file and authentication."""

from __future__ import annotations

import base64
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_twisted  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor as global_reactor
from twisted.internet.defer import Deferred, fail
from twisted.internet.task import Clock

from gateway.broker.security.logins import FREE, Logins, Rank
from gateway.broker.security.passcodes import Passcodes, TooManyWait, hash_passcode
from gateway.broker.security.users import (
    Principal,
    User,
    Users,
    UsersError,
    check_name,
    edited,
    make_first_users,
    parse,
    password_of_admin,
    read_users,
    render,
    write_users,
)
from gateway.instance import passfile
from gateway.instance.layout import Layout
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from tests.gateway.broker.brokers import Deployment
from tests.logged import logged
from tests.on_reactor import on_reactor

reactor = cast(Any, global_reactor)

#: Of "sesame". Always the same, as it is in the names of tests.
HASH = (
    "$argon2id$v=19$m=19456,t=2,p=1"
    "$sGdK5pYeFnDbPriNFpbILQ$f0fcuQZeDpcddTJASYyROMde+9PBWSUIwFTvuFAJl/Y"
)
VERSION = "version=StompGatewayUsers/1\n"
EVERYBODY = [
    User("alice", frozenset({"user", "staff"}), HASH),
    User("idle", frozenset({"user"}), HASH, active=False),
    User("guest", frozenset({"anonymous"}), HASH, loopback=True),
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_users(tmp_path / "users", EVERYBODY)
    return tmp_path / "users"


@pytest.fixture
def users(file: Path) -> Iterator[Users]:
    users = Users(file, reactor)
    users.load()
    yield users
    users.close()


async def refusal(users: Users, credentials: Credentials) -> str:
    """Why the credentials are refused."""
    with pytest.raises(AuthenticationFailed) as error:
        await users.authenticate(credentials)
    return error.value.reason


@on_reactor
async def test_the_right_passcode(users: Users) -> None:
    assert await users.authenticate(Credentials("alice", "sesame", "192.0.2.1")) == Principal(
        "alice", frozenset({"user", "staff"})
    )


@on_reactor
async def test_an_unknown_user_is_told_what_a_wrong_passcode_is_told(users: Users) -> None:
    wrong = await refusal(users, Credentials("alice", "simsim"))
    assert (
        wrong
        == await refusal(users, Credentials("nobody", "sesame"))
        == "unknown user or wrong passcode"
    )
    assert await refusal(users, Credentials("idle", "simsim")) == wrong
    assert await refusal(users, Credentials("guest", "simsim", "192.0.2.1")) == wrong


@on_reactor
async def test_an_empty_passcode_is_refused_and_not_verified(file: Path) -> None:
    users = Users(file, reactor, NeverAsked(reactor))
    users.load()
    for name in ("alice", "nobody", ""):
        assert await refusal(users, Credentials(name, "")) == "the passcode is empty"


class NeverAsked(Passcodes):
    def verify(
        self,
        hash: str | None,
        passcode: str,
        address: str = "",
        name: str = "",
        rank: Rank = Rank.OTHER,
    ) -> Deferred[bool]:
        raise AssertionError("nothing was to be verified")


@on_reactor
async def test_an_inactive_user(users: Users) -> None:
    assert await refusal(users, Credentials("idle", "sesame")) == "the user is inactive"


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1", "127.255.3.4", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"]
)
@on_reactor
async def test_guests_come_from_this_machine(users: Users, address: str) -> None:
    assert (await users.authenticate(Credentials("guest", "sesame", address))).name == "guest"


@pytest.mark.parametrize(
    "address",
    [
        "192.0.2.1",
        "128.0.0.1",
        "::2",
        "::ffff:192.0.2.1",
        "fe80::1%lo",
        "::127.0.0.1",
        "localhost",
        "0.0.0.0",
    ],
)
@on_reactor
async def test_guests_come_from_nowhere_else(users: Users, address: str) -> None:
    assert (
        await refusal(users, Credentials("guest", "sesame", address))
        == "the user may connect from the server's own machine only"
    )


@on_reactor
async def test_a_certificate_stands_in_for_a_passcode(users: Users) -> None:
    for login in ("", "alice"):
        credentials = Credentials(login, "", "192.0.2.1", certificate="alice")
        assert (await users.authenticate(credentials)).name == "alice"


@on_reactor
async def test_a_certificate_may_vouch_for_groups(users: Users, file: Path) -> None:
    def shown(name: str, *groups: str) -> Credentials:
        return Credentials("", "", "192.0.2.1", name, frozenset(groups))

    stranger = await users.authenticate(shown("stranger", "shop"))
    assert stranger.name == "stranger"
    assert stranger.groups == {"shop"}
    alice = await users.authenticate(shown("alice", "shop"))
    assert alice.groups == {"shop", "staff", "user"}
    assert await refusal(users, shown("idle", "shop")) == "the user is inactive"
    assert "expected printable characters" in await refusal(users, shown("stranger", "a:b"))
    # What the file says later holds for those who are connected.
    write_users(file, [User("stranger", frozenset({"new"}), HASH)])
    users.reload()
    assert users.readmit(stranger, "192.0.2.1").groups == {"shop", "new"}
    assert users.readmit(alice, "192.0.2.1").groups == {"shop"}
    write_users(file, [User("stranger", frozenset(), HASH, active=False)])
    users.reload()
    with pytest.raises(AuthenticationFailed, match="inactive"):
        users.readmit(stranger, "192.0.2.1")


@on_reactor
async def test_a_certificate_of_somebody_else(users: Users) -> None:
    assert (
        await refusal(users, Credentials("alice", "", certificate="bob"))
        == "the client certificate is another user's"
    )
    assert (
        await refusal(users, Credentials("", "", certificate="bob"))
        == "the client certificate's user is unknown"
    )
    assert await refusal(users, Credentials("", "", certificate="idle")) == "the user is inactive"
    assert "own machine" in await refusal(
        users, Credentials("", "", "192.0.2.1", certificate="guest")
    )
    assert (
        await refusal(users, Credentials("", "", certificate=""))
        == "the client certificate's user is unknown"
    )


@on_reactor
async def test_a_passcode_that_is_given_is_verified_whatever_the_certificate(users: Users) -> None:
    assert "wrong passcode" in await refusal(
        users, Credentials("alice", "simsim", certificate="alice")
    )
    assert (
        await users.authenticate(Credentials("alice", "sesame", certificate="idle"))
    ).name == "alice"


@on_reactor
async def test_before_the_first_load_nobody_is_known(file: Path) -> None:
    users = Users(file, reactor)
    assert "unknown user" in await refusal(users, Credentials("alice", "sesame"))
    users.close()


@on_reactor
async def test_reload(users: Users, file: Path) -> None:
    assert await users.authenticate(Credentials("alice", "sesame"))
    write_users(file, [User("alice", frozenset({"new"}), hash_passcode("simsim"))])
    assert await users.authenticate(Credentials("alice", "sesame"))
    users.reload()
    assert "wrong passcode" in await refusal(users, Credentials("alice", "sesame"))
    assert (await users.authenticate(Credentials("alice", "simsim"))).groups == {"new"}
    file.write_text("rubbish\n")
    with pytest.raises(UsersError):
        users.reload()
    assert await users.authenticate(Credentials("alice", "simsim"))


@on_reactor
async def test_a_reload_while_a_passcode_is_verified(users: Users, file: Path) -> None:
    old, new = (
        users.authenticate(Credentials("alice", "sesame")),
        users.authenticate(Credentials("alice", "simsim")),
    )
    write_users(file, [User("alice", frozenset({"new"}), hash_passcode("simsim"))])
    users.reload()
    with pytest.raises(AuthenticationFailed):
        await old
    assert (await new).groups == {"new"}


@on_reactor
async def test_a_reload_that_takes_the_user_away_while_its_passcode_is_verified(
    users: Users, file: Path
) -> None:
    asked = users.authenticate(Credentials("alice", "sesame"))
    write_users(file, [])
    users.reload()
    with pytest.raises(AuthenticationFailed):
        await asked


class Busy(Passcodes):
    """One with whom too many wait."""

    def verify(
        self,
        hash: str | None,
        passcode: str,
        address: str = "",
        name: str = "",
        rank: Rank = Rank.OTHER,
    ) -> Deferred[bool]:
        return fail(TooManyWait("7 logins are waiting to be verified; try again later"))


@on_reactor
async def test_too_many_logins(file: Path) -> None:
    users = Users(file, reactor, Busy(reactor))
    users.load()
    assert (
        await refusal(users, Credentials("alice", "sesame"))
        == "7 logins are waiting to be verified; try again later"
    )


@on_reactor
async def test_those_who_come_again_and_again_while_too_many_wait_are_held_back(file: Path) -> None:
    waiting = Clock()
    users = Users(file, reactor, Busy(reactor), Logins(waiting))
    users.load()
    for _ in range(FREE):
        await refusal(users, Credentials("alice", "sesame", "192.0.2.1"))
    late = users.authenticate(Credentials("alice", "sesame", "192.0.2.1"))
    assert not late.called
    waiting.advance(1)
    with pytest.raises(AuthenticationFailed):
        await late


def test_neither_passcodes_nor_hashes_are_shown() -> None:
    assert "$argon2" not in repr(EVERYBODY[0])
    with pytest.raises(UsersError) as error:
        parse(f"{VERSION}alice:user:active:everywhere:{HASH}\n", Path("users"))
    assert "$argon2" not in str(error.value)


def test_a_file_that_others_can_read_is_warned_of(file: Path, users: Users) -> None:
    file.chmod(0o644)
    with logged() as events:
        users.reload()
    assert [
        event["file"] for event in events if "its mode should be 0600" in str(event["log_format"])
    ] == [str(file)]


def unpadded(octets: bytes) -> str:
    return base64.b64encode(octets).decode().rstrip("=")


names = st.text(
    st.characters(exclude_categories=["C", "Z"], exclude_characters=":,*"), min_size=1, max_size=20
)
hashes = st.tuples(
    st.binary(min_size=16, max_size=16), st.binary(min_size=32, max_size=32), st.integers(8, 2**20)
).map(
    lambda parts: f"$argon2id$v=19$m={parts[2]},t=2,p=1${unpadded(parts[0])}${unpadded(parts[1])}"
)


@given(
    st.lists(
        st.builds(User, names, st.frozensets(names), hashes, st.booleans(), st.booleans()),
        unique_by=lambda user: user.name,
    )
)
def test_what_is_written_is_read_back(everybody: list[User]) -> None:
    read = parse(render(everybody), Path("users"))
    assert (list(read.values()), list(read)) == (everybody, [user.name for user in everybody])


@given(st.text())
def test_any_text_is_users_or_an_error_of_ours(text: str) -> None:
    for whole in (text, VERSION + text):
        try:
            parse(whole, Path("users"))
        except UsersError as error:
            assert "\n" not in str(error)  # noqa: PT017


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("alice", "expected 5 fields"),
        (f"alice:user:active:{HASH}", "expected 5 fields"),
        (f":user:active:any:{HASH}", "user name ''"),
        (f"a*:user:active:any:{HASH}", "none of them : , or *"),
        (f"a\tb:user:active:any:{HASH}", "printable"),
        (f"alice:user,,staff:active:any:{HASH}", "group name ''"),
        (f"alice:user:true:any:{HASH}", "'true': expected active or inactive"),
        (f"alice:user:active:all:{HASH}", "'all': expected loopback or any"),
        ("alice:user:active:any:sesame", "expected an Argon2id hash"),
        (
            f"alice:user:active:any:{HASH}\nalice:user:active:any:{HASH}",
            "user 'alice' is there twice",
        ),
    ],
)
def test_lines_that_are_no_users(line: str, what: str) -> None:
    with pytest.raises(UsersError) as error:
        parse(f"{VERSION}\n{line}\n", Path("users"))
    assert (error.value.file, error.value.line) == (Path("users"), 3 + line.count("\n"))
    assert what in error.value.what


def test_files_that_are_none(tmp_path: Path) -> None:
    file = tmp_path / "users"
    with pytest.raises(UsersError, match="cannot be read: No such file"):
        read_users(file)
    file.write_text("")
    with pytest.raises(UsersError, match="users:1: expected version=StompGatewayUsers/1"):
        read_users(file)
    file.write_bytes(VERSION.encode() + b"\nalice\xff\n")
    with pytest.raises(UsersError, match="users:3: expected text in UTF-8"):
        read_users(file)


def test_an_empty_group_list_and_the_line_ends_of_windows_are_understood() -> None:
    read = parse(f"{VERSION}alice::active:any:{HASH}\n".replace("\n", "\r\n"), Path("users"))
    assert read == {"alice": User("alice", frozenset(), HASH)}


@pytest.mark.parametrize(
    "name",
    ["", " a", "a ", "a:b", "a,b", "*", "a\x00", "a\nb", "\x7f", "a\u2028b", "\ud800", "x" * 256],
)
def test_names_that_nobody_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "Max Power", "größe", "a=b", "#a", "a.b", "x" * 255])
def test_names_that_somebody_can_have(name: str) -> None:
    assert check_name(name) == name


def test_editing_writes_only_what_ends_well_and_changed(file: Path) -> None:
    before = file.stat()
    with edited(file):
        pass
    assert file.stat().st_ino == before.st_ino

    def fail_halfway() -> None:
        with edited(file) as users:
            users.clear()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert list(read_users(file)) == ["alice", "idle", "guest"]
    with edited(file) as users:
        del users["idle"]
    assert list(read_users(file)) == ["alice", "guest"]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(UsersError, match="No such file"), edited(file.parent / "missing" / "users"):
        pass


@on_reactor
async def test_a_new_instance_has_a_guest_and_an_admin(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "one")
    make_first_users(layout)
    file, password = layout.users, password_of_admin(layout)
    assert len(password) >= 20
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert password not in file.read_text()
    users = Users(file, reactor)
    users.load()
    assert await users.authenticate(Credentials("guest", "guest", "127.0.0.1")) == Principal(
        "guest", frozenset({"anonymous"})
    )
    assert "own machine" in await refusal(users, Credentials("guest", "guest", "192.0.2.1"))
    assert await users.authenticate(Credentials("admin", password, "192.0.2.1")) == Principal(
        "admin", frozenset({"admin"})
    )
    assert "wrong passcode" in await refusal(users, Credentials("admin", "admin"))
    users.close()


@on_reactor
async def test_the_admins_password_may_be_given(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "one")
    layout.etc.mkdir(parents=True)
    passfile.update(layout.passfile, {"imq.imqcmd.password": "sesame"})
    make_first_users(layout)
    users = Users(layout.users, reactor)
    users.load()
    assert (await users.authenticate(Credentials("admin", "sesame"))).name == "admin"
    users.close()


def test_two_new_instances_have_different_passwords_and_users_are_not_overwritten(
    tmp_path: Path,
) -> None:
    one, two = Layout(tmp_path, "one"), Layout(tmp_path, "two")
    make_first_users(one)
    make_first_users(two)
    assert password_of_admin(one) != password_of_admin(two)
    before = one.users.read_bytes()
    with pytest.raises(FileExistsError, match=str(one.users)):
        make_first_users(one)
    assert one.users.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "address", "reason"),
    [
        (None, "192.0.2.1", "the user was deleted"),
        (User("alice", frozenset(), HASH, active=False), "192.0.2.1", "the user is inactive"),
        (
            User("alice", frozenset(), HASH, loopback=True),
            "192.0.2.1",
            "the server's own machine only",
        ),
        (User("alice", frozenset(), HASH, loopback=True), "::ffff:127.0.0.1", None),
        (User("alice", frozenset({"new"}), hash_passcode("other")), "192.0.2.1", None),
    ],
)
def test_who_is_connected_is_judged_by_the_file_as_it_is_now(
    line: User | None, address: str, reason: str | None, file: Path, users: Users
) -> None:
    """Without the passcode: one that is changed is asked for at the next CONNECT."""
    principal = Principal("alice", frozenset({"user", "staff"}))
    assert users.readmit(principal, address) == principal
    write_users(file, [] if line is None else [line])
    users.reload()
    if reason is None:
        assert line is not None
        assert users.readmit(principal, address) == Principal("alice", line.groups)
    else:
        with pytest.raises(AuthenticationFailed, match=reason):
            users.readmit(principal, address)


@pytest_twisted.ensureDeferred
async def test_those_in_the_group_do_as_long_as_they_are_in_it(tmp_path: Path) -> None:
    deployment = Deployment(reactor, tmp_path, "memory")
    # Each user's name is a group that it is in.
    admin, guest = [(await deployment.connect(user)).connection for user in ("admin", "guest")]
    assert (admin.administers, guest.administers) == (True, False)
    deployment.users.groups.update(admin=frozenset({"staff"}), guest=frozenset({"staff", "admin"}))
    deployment.provider.readmit()
    assert (admin.administers, guest.administers) == (False, True)
    await deployment.close()
