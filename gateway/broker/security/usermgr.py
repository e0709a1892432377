"""The ``imqusermgr`` command.

Owns the command line: options, prompts, what is printed, exit codes. The users file is
:mod:`gateway.broker.security.users`'s.

Users may be looked after before an instance's first start: then what changes them makes the users
and access rules that a new instance has first, and that start the rest. An instance has been started
if it has its lock file; its settings may be there before.

Passwords are prompted for, or read from a passfile under ``imq.imqusermgr.password``; never taken
from the command line, which others on the machine can see. Exit codes: 0 done; 1 it could not be
done; 2 the command line is wrong. An error is one line on the standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import click

from gateway.broker.security.access import make_first_rules
from gateway.broker.security.passcodes import hash_passcode
from gateway.broker.security.users import (
    ADMIN_GROUP,
    FIRST_ADMINISTRATOR,
    FIRST_USERS,
    User,
    UsersError,
    check_name,
    edited,
    make_first_users,
    read_users,
)
from gateway.instance import passfile
from gateway.instance.command_end import run_to_the_end
from gateway.instance.command_line import (
    PATH,
    C,
    CommandRefused,
    add_completion,
    complain,
    run_command,
    with_instance,
)
from gateway.instance.layout import Layout

PROGRAM: Final = "imqusermgr"
PASSWORD_NAME: Final = "imq.imqusermgr.password"
_RELOAD: Final = "A running server reads it when it gets SIGHUP."
_FIRST_START: Final = "The gateway's first start uses it, and makes the rest of the instance."


def _not_visible(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    # The value is not echoed, either.
    if value is not None:
        raise click.UsageError(
            "-p is refused: other users of this machine can see a password that is given there; give -passfile, or be asked"
        )


def _user_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return check_name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _group_names(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> frozenset[str] | None:
    if value is None:
        return None
    try:
        return frozenset(check_name(name.strip(), "group") for name in value.split(","))
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def _truth(context: click.Context, parameter: click.Parameter, value: str | None) -> bool | None:
    known = {"true": True, "active": True, "false": False, "inactive": False}
    if value is None:
        return None
    if value.lower() not in known:
        raise click.BadParameter(f"{value!r}: expected true or false")
    return known[value.lower()]


def _with_instance(function: C) -> C:
    silent = click.option("-s", "silent", is_flag=True, help="Say nothing when all is well.")
    return silent(with_instance(function))


def _with_password(function: C) -> C:
    for option in (
        click.option(
            "-p",
            "given",
            is_flag=False,
            flag_value="",
            callback=_not_visible,
            expose_value=False,
            hidden=True,
        ),
        click.option(
            "--passfile",
            "-passfile",
            "passwords",
            type=PATH,
            help=f"Has {PASSWORD_NAME}, in place of a prompt.",
        ),
    ):
        function = option(function)
    return function


_user = click.option("-u", "name", required=True, callback=_user_name, help="The user's name.")
_reach = click.option(
    "--loopback/--any",
    "loopback",
    default=None,
    help="Whether the user may connect from this machine only.",
)
_active = click.option(
    "-a",
    "active",
    metavar="true|false",
    callback=_truth,
    help="Whether the user may connect at all.",
)


@click.group()
def command() -> None:
    """Look after the users of an instance."""


add_completion(command, PROGRAM)


@command.command()
@_with_instance
@_with_password
@_user
@click.option(
    "-g",
    "groups",
    default="user",
    show_default=True,
    callback=_group_names,
    help="Its groups, with commas between.",
)
@_active
@_reach
def add(
    name: str,
    groups: frozenset[str],
    active: bool | None,
    loopback: bool | None,
    passwords: Path | None,
    varhome: Path,
    instance: str,
    silent: bool,
) -> None:
    """Add a user."""
    layout = Layout(varhome.absolute(), instance)
    if name in _known(layout):
        raise CommandRefused(f"user '{name}' exists{_of_new(layout)}")
    hash = hash_passcode(
        _password(passwords, name)
    )  # before the file is locked: a prompt may take long
    _make_first(layout)
    with edited(layout.users) as users:
        if name in users:
            raise CommandRefused(f"user '{name}' exists")
        users[name] = User(name, groups, hash, active is not False, bool(loopback))
    _say(silent, f"User '{name}' is added. {_when(layout)}")


@command.command()
@_with_instance
@_user
@click.option("-f", "force", is_flag=True, help="Do not ask.")
def delete(name: str, force: bool, varhome: Path, instance: str, silent: bool) -> None:
    """Delete a user."""
    layout = Layout(varhome.absolute(), instance)
    if name not in _known(layout):
        raise CommandRefused(f"there is no user '{name}'{_of_new(layout)}")
    if not force:
        new = _is_new(layout)
        if name == FIRST_ADMINISTRATOR if new else _is_last_administrator(_kept(layout), name):
            raise CommandRefused(
                f"user '{name}' is the only active one in group {ADMIN_GROUP}; -f deletes it all the same"
            )
        click.confirm(f"Delete user '{name}'?", abort=True, err=True)
    _make_first(layout)
    with edited(layout.users) as users:
        last = _is_last_administrator(users, name)
        if users.pop(name, None) is None:
            raise CommandRefused(f"there is no user '{name}'")
    if last:
        _warn_of_no_administrator()
    _say(silent, f"User '{name}' is deleted. {_when(layout)}")


@command.command()
@_with_instance
@_with_password
@_user
@click.option(
    "-g", "groups", callback=_group_names, help="Its groups from now on, with commas between."
)
@_active
@_reach
@click.option(
    "--password",
    "ask",
    is_flag=True,
    help="Ask for a new password. So it does when nothing else is to be changed.",
)
@click.option("-f", "force", is_flag=True, hidden=True)
def update(
    name: str,
    groups: frozenset[str] | None,
    active: bool | None,
    loopback: bool | None,
    ask: bool,
    force: bool,
    passwords: Path | None,
    varhome: Path,
    instance: str,
    silent: bool,
) -> None:
    """Change a user's password, groups, or whether it may connect."""
    layout = Layout(varhome.absolute(), instance)
    if name not in _known(layout):
        raise CommandRefused(f"there is no user '{name}'{_of_new(layout)}")
    changes_password = (
        ask or passwords is not None or (groups is None and active is None and loopback is None)
    )
    hash = hash_passcode(_password(passwords, name)) if changes_password else None
    _make_first(layout)
    with edited(layout.users) as users:
        last = _is_last_administrator(users, name)
        old = users.get(name)
        if old is None:
            raise CommandRefused(f"there is no user '{name}'")
        users[name] = User(
            name,
            old.groups if groups is None else groups,
            old.hash if hash is None else hash,
            old.active if active is None else active,
            old.loopback if loopback is None else loopback,
        )
        last = last and not _administrates(users[name])
    if last:
        _warn_of_no_administrator()
    _say(silent, f"User '{name}' is changed. {_when(layout)}")


@command.command("list")
@_with_instance
@click.option("-u", "only", help="Only this user.")
def list_(only: str | None, varhome: Path, instance: str, silent: bool) -> None:
    """List the users."""
    layout = Layout(varhome.absolute(), instance)
    if _is_new(layout):
        raise CommandRefused(
            f"there is no instance {layout.directory} yet; the gateway's first start, or 'add', makes one with its first users"
            if not layout.exists
            else f"instance {layout.directory} has no users yet; its first start, or 'add', makes the first ones"
        )
    users = _kept(layout)
    if only is not None and only not in users:
        raise CommandRefused(f"there is no user '{only}'")
    rows = [("USER", "GROUPS", "STATE", "FROM")]
    for user in users.values():
        if only in (None, user.name):
            state, reach = (
                "active" if user.active else "inactive",
                "loopback" if user.loopback else "any",
            )
            rows.append((user.name, ",".join(sorted(user.groups)) or "-", state, reach))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        click.echo(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def run(arguments: Sequence[str]) -> int:
    """Run the command. :returns: the exit code."""
    return run_command(command, PROGRAM, arguments, UsersError, passfile.PassfileError)


def main() -> None:
    """The console script."""
    run_to_the_end(run)


def _is_new(layout: Layout) -> bool:
    """Whether the instance has never been started, and has no users."""
    return not layout.users.exists() and not layout.lock_file.exists()


def _known(layout: Layout) -> Collection[str]:
    """Return the names of the users of an instance.

    Of a new one these are those that it will have first.
    """
    return FIRST_USERS if _is_new(layout) else _kept(layout)


def _kept(layout: Layout) -> Mapping[str, User]:
    """Return the users of an instance that is not new.

    :raises CommandRefused: it has lost them.
    """
    if not layout.users.exists():
        raise CommandRefused(
            f"{layout.users} is gone from an instance that has run: put it back, such as from a backup of the etc folder. Without it no user can connect"
        )
    return read_users(layout.users)


def _of_new(layout: Layout) -> str:
    """Say whose users it is about, where the instance is yet to be made."""
    if not _is_new(layout):
        return ""
    return (
        f": instance {layout.directory} is new, and its first users are {' and '.join(FIRST_USERS)}"
    )


def _make_first(layout: Layout) -> None:
    """Make the users and access rules of a first start, if it is new."""
    if not _is_new(layout):
        return
    # Printed also with -s, because these users were not asked for. The password is for a
    # terminal only: anything else may keep it.
    click.echo(f"New instance {layout.directory}")
    for line in make_first_users(layout, shown=sys.stdout.isatty()):
        click.echo(f"{line[0].upper()}{line[1:]}")
    make_first_rules(layout)


def _when(layout: Layout) -> str:
    """Say when a change holds."""
    return _RELOAD if layout.lock_file.exists() else _FIRST_START


def _administrates(user: User) -> bool:
    return user.active and ADMIN_GROUP in user.groups


def _is_last_administrator(users: Mapping[str, User], name: str) -> bool:
    return [user.name for user in users.values() if _administrates(user)] == [name]


def _warn_of_no_administrator() -> None:
    complain(PROGRAM, f"warning: no active user is in group {ADMIN_GROUP} now")


def _password(passwords: Path | None, name: str) -> str:
    if passwords is not None:
        given = passfile.read(passwords).get(PASSWORD_NAME, "")
        if not given:
            raise CommandRefused(f"{passwords} has no {PASSWORD_NAME}")
        return given
    asked: str = click.prompt(
        f"Password of user '{name}'", hide_input=True, confirmation_prompt=True, err=True
    )
    return asked


def _say(silent: bool, text: str) -> None:
    if not silent:
        click.echo(text)


if __name__ == "__main__":
    main()
