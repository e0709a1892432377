"""The ``imqdbmgr`` command.

Owns the command line: options, the question, what is printed, exit codes, and which kind of store
it is about. A store's files are :mod:`gateway.broker.store`'s, its tables in a database
:mod:`gateway.broker.operator.tables`'s.

Exit codes: 0 done, or in order; 1 it could not be done, or ``query`` or ``check`` found damage; 2
the command line is wrong. An error is one line on the standard error.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bridge.xa.log.contents import LogCopy
from gateway import store_copies
from gateway.broker.operator.log_states import state_of
from gateway.broker.properties.jdbc import jdbc_options
from gateway.broker.store.integrity import inspection, salvage
from gateway.broker.store.integrity.opening import EMPTY_STORE
from gateway.broker.store.integrity.salvage import Loss
from gateway.broker.store.integrity.wal import Finding
from gateway.broker.store.interface import BranchRow, StoreError
from gateway.broker.xa.branch import restored
from gateway.configuration import read_settings
from gateway.instance import passfile
from gateway.instance.command_end import run_to_the_end
from gateway.instance.command_line import (
    PATH,
    C,
    CommandRefused,
    add_completion,
    run_command,
    with_instance,
)
from gateway.instance.layout import Layout, make_directory, sync_directory
from gateway.instance.passfile import PassfileError
from gateway.instance.problems import counted
from gateway.instance.settings import SettingsError
from gateway.journal import chain, holes
from gateway.journal.holes import RunLines
from gateway.standing_orders import read_orders, write_orders
from gateway.store_copies import read_log
from gateway.transaction_log import PlainLog, own_logs, set_aside

if TYPE_CHECKING:
    from gateway.broker.operator.tables import Tables

PROGRAM: Final = "imqdbmgr"


class Chosen:
    """The store that the command line means.

    :ivar layout: the instance.
    :ivar tables: its tables in a database; None where it keeps its messages in a file.
    """

    def __init__(
        self, varhome: Path, instance: str, passfile_path: Path | None, overrides: Sequence[str]
    ) -> None:
        self.layout = Layout(varhome.absolute(), instance)
        self.tables: Tables | None = None
        settings, *_ = read_settings(self.layout, overrides)
        path = passfile_path or passfile.location(settings, self.layout)
        if path is not None:
            settings = passfile.applied(settings, path)
        options = jdbc_options(settings, instance)
        if options is not None:
            # Only here, as it needs psycopg.
            from gateway.broker.operator.tables import Tables

            self.tables = Tables(options, read_log)

    def in_database(self, instead: str) -> Tables:
        """Return the tables.

        :param instead: what to do with a file.
        :raises CommandRefused: the store is a file.
        """
        if self.tables is None:
            raise CommandRefused(
                f"{self.layout.directory} has its messages in a file (imq.persist.store); {instead}"
            )
        return self.tables


def with_store(function: C) -> C:
    """Add the options that say which store is meant, as ``chosen``."""

    @wraps(function)
    def choosing(
        varhome: Path,
        instance: str,
        passfile_path: Path | None,
        overrides: tuple[str, ...],
        **others: object,
    ) -> object:
        return function(Chosen(varhome, instance, passfile_path, overrides), **others)

    given = click.option(
        "--passfile",
        "-passfile",
        "passfile_path",
        type=PATH,
        help="The passfile with the password of the database; else that of the settings.",
    )
    override = click.option(
        "-D",
        "overrides",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting over the instance's.",
    )
    return with_instance(given(override(choosing)))  # type: ignore[return-value]


def with_force(function: C) -> C:
    """Add the option not to ask, as ``force``."""
    return click.option("-f", "force", is_flag=True, help="Do not ask.")(function)


def with_folder(help: str) -> Callable[[C], C]:
    """Add the option for the folder of a copy, as ``folder``."""
    return click.option("-dir", "--dir", "folder", type=PATH, required=True, help=help)


def _confirm(force: bool) -> Callable[[str], None]:
    def confirm(question: str) -> None:
        if not force:
            click.confirm(question, abort=True, err=True)

    return confirm


#: Open MQ's word for the tables. Where it may be left out, the command is also for a file.
_tables = click.argument("what", type=click.Choice(["tbl"]), metavar="tbl", expose_value=False)
_tables_or_file = click.argument(
    "what", type=click.Choice(["tbl"]), metavar="[tbl]", required=False, expose_value=False
)


@click.group()
def command() -> None:
    """Maintain the message store of an instance.

    A store in a file: only while its gateway is stopped, except for backup.
    """


add_completion(command, PROGRAM)


@command.command()
@_tables
@with_store
def create(chosen: Chosen) -> None:
    """Make the tables of a broker in its database."""
    tables = chosen.in_database("the first start makes it")
    click.echo(tables.create())


@command.command()
@_tables
@with_store
@with_force
def delete(chosen: Chosen, force: bool) -> None:
    """Remove the tables of a broker, with all its messages."""
    tables = chosen.in_database("'imqdbmgr recreate' begins an empty one")
    click.echo(tables.delete(_confirm(force), force))


@command.command()
@_tables
@with_store
def upgrade(chosen: Chosen) -> None:
    """Make tables of an earlier version those of this version."""
    tables = chosen.in_database("the start of the gateway upgrades it")
    click.echo(tables.upgrade())


@command.command()
@_tables_or_file
@with_store
@with_folder("The folder that messages.db is made in.")
def backup(chosen: Chosen, folder: Path) -> None:
    """Copy all that a store has to a store in a file.

    The gateway may run. The copy is of one moment, and every checksum in it is compared.
    """
    tables = chosen.tables
    if tables is None:
        click.echo(store_copies.backup(_with_file(chosen), folder.absolute(), _work))
        return
    keep = partial(write_orders, chosen.layout) if _is_own(chosen.layout, folder) else _keep_none
    click.echo(tables.backup(folder.absolute(), keep))


@command.command()
@_tables_or_file
@with_store
@with_folder("The folder with messages.db: a backup, or the store of a stopped gateway.")
@with_force
def restore(chosen: Chosen, folder: Path, force: bool) -> None:
    """Replace all that a store has by what a store in a file has.

    Completely or not at all; only while the gateway is stopped.
    """
    tables, layout, confirm = chosen.tables, chosen.layout, _confirm(force)
    if tables is None:
        click.echo(store_copies.restore(layout, folder.absolute(), _work, confirm))
        return
    if not _is_own(layout, folder):
        click.echo(tables.restore(folder.absolute(), {}, None, _work, confirm))
        return
    with layout.lock():
        own = own_logs(layout)
        click.echo(tables.restore(folder.absolute(), own, read_orders(layout), _work, confirm))
        for path in own.values():
            click.echo(f"{path} is called {set_aside(path)} now.")


@command.command()
@click.argument("what", type=click.Choice(["jmsbridge"]), metavar="jmsbridge", expose_value=False)
@with_store
@click.option("-n", "--name", "bridge", required=True, metavar="BRIDGE", help="The bridge.")
@with_force
def remove(chosen: Chosen, bridge: str, force: bool) -> None:
    """Remove the transaction log of a bridge, and what was paused.

    Refused while it has unfinished transactions; with -f those are forgotten.
    """
    confirm = _confirm(force)
    if chosen.tables is not None:
        click.echo(chosen.tables.remove_bridge(bridge, confirm, force))
        file = chosen.layout.transaction_log(bridge)
        if file.exists():
            click.echo(f"{file} is still there, and goes on when the bridge starts.")
        return
    layout = chosen.layout
    if not layout.exists:
        raise CommandRefused(f"{layout.directory} is no instance")
    with layout.lock():
        paths = PlainLog(layout, bridge).files()
        if not paths:
            raise CommandRefused(f"{layout.transaction_log(bridge)} does not exist")
        states = [state_of(bridge, partial(_file_copy, path)) for path in paths]
        if not force:
            for path, state in zip(paths, states, strict=True):
                state.check_over(str(path))
        confirm(f"Remove the transaction log {' and '.join(map(str, paths))}?")
        for path in paths:
            path.unlink()
            sync_directory(path.parent)
        layout.bridge_orders(bridge).unlink(missing_ok=True)
    for path, state in zip(paths, states, strict=True):
        click.echo(f"The transaction log {path} of bridge {state} is removed.")


def _is_own(layout: Layout, folder: Path) -> bool:
    """Whether the folder is the instance's own store."""
    return folder.resolve() == layout.store.resolve()


def _keep_none(orders: Mapping[str, str]) -> None:
    """The folder is not an instance's, and has no place for orders."""


def _file_copy(path: Path) -> LogCopy:
    return read_log(path.read_bytes(), str(path), False)


@command.command()
@_tables_or_file
@with_store
def query(chosen: Chosen) -> int:
    """Describe the tables; or say whether a file's log is in order.

    Of a log also what would be lost. Nothing is changed.
    """
    if chosen.tables is not None:
        click.echo("\n".join(chosen.tables.query()))
        return 0
    layout = _with_file(chosen)
    with layout.lock():
        loss = salvage.look(str(layout.messages))
    if loss is None:
        click.echo(f"The log of {layout.messages} is in order.")
        return 0
    _describe(loss)
    return 1


@command.command()
@_tables_or_file
@with_store
def check(chosen: Chosen) -> int:
    """Read the whole store and list all damage, with its place.

    Nothing is changed.
    """
    if chosen.tables is not None:
        problems, lines = chosen.tables.check(_work)
        click.echo("\n".join(lines))
        return 1 if problems else 0
    layout = _with_file(chosen)
    with layout.lock():
        report = inspection.inspect(str(layout.messages), _work)
    for problem in report.problems:
        click.echo(problem)
    if report.problems:
        click.echo(
            f"{layout.messages} is damaged: {counted(len(report.problems), 'problem')}. Of its messages {report.messages} were looked at."
        )
        return 1
    how = (
        "was closed in order"
        if report.clean
        else f"was not closed in order: the next start brings it to its last commit. {layout.messages}-wal has {report.frames} frames up to "
        "its last commit; whether it had more cannot be known"
    )
    click.echo(f"{layout.messages} is whole: {report.messages} messages. It {how}.")
    return 0


@command.command()
@click.argument("what", type=click.Choice(["journal"]), metavar="journal", expose_value=False)
@click.option(
    "-dir", "--dir", "folder", type=PATH, help="Another folder with the journal, such as a copy."
)
@click.option(
    "-head", "--head", help="What the chain must end in, or have in it: as it was told before."
)
@with_instance
def verify(varhome: Path, instance: str, folder: Path | None, head: str | None) -> int:
    """Compare the journal's segments with their chain of hashes.

    Missing lines are counted. It may run while the gateway does. Nothing is changed.
    """
    journal = folder or Layout(varhome.absolute(), instance).journal
    try:
        found = holes.holes(journal)
        for each in found:
            click.echo(_missing(each))
        verified = chain.verify(journal, head)
    except OSError as error:
        raise CommandRefused(str(error)) from error
    for problem in verified.problems:
        click.echo(problem)
    click.echo(f"Segments as they were chained: {verified.segments}")
    if verified.found:
        click.echo(f"Of them found whole, so vouched for since then only: {verified.found}")
    click.echo(f"Head of the chain: {verified.head}")
    return 1 if verified.problems or any(each.missing for each in found) else 0


def _missing(run: RunLines) -> str:
    """Say what is missing of a run of the gateway, or may be."""
    missing = "1 line is missing" if run.missing == 1 else f"{run.missing} lines are missing"
    last = f"; its last line that is there is {run.last}" if run.last else ""
    if run.killed:
        more = "lines of its last moment may be missing"
        return f"Run {run.run} was killed: {f'{missing}, and ' if run.missing else ''}{more}{last}"
    if run.open:
        more = "its newest lines are not there yet, or are missing if it was killed"
        return (
            f"Run {run.run} has not ended: {f'{missing}, and ' if run.missing else ''}{more}{last}"
        )
    return f"Run {run.run}: {missing}{last}"


def _work(row: BranchRow) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    _, sent, taken = restored(row)
    return sent, taken


@command.command()
@with_store
@with_force
def recover(chosen: Chosen, force: bool) -> None:
    """Make a store whose log is damaged usable again.

    What follows the last good commit is given up.

    What is given up is said first. The files are copied beside the store before anything is
    changed.
    """
    if chosen.tables is not None:
        raise CommandRefused(
            f"{chosen.tables.described}, has no log of its own to recover from; 'imqdbmgr check' reads all of it"
        )
    layout = _with_file(chosen)
    path = str(layout.messages)
    with layout.lock():
        loss = salvage.look(path)
        if loss is None:
            click.echo(f"The log of {path} is in order; nothing was done.")
            return
        _describe(loss)
        if not force:
            click.confirm("Give this up?", abort=True, err=True)
        aside = layout.aside()
        count = salvage.recover(path, loss, str(aside))
    click.echo(f"The store has {count} persistent messages. The files as they were are in {aside}")


@command.command()
@_tables_or_file
@with_store
@with_force
def recreate(chosen: Chosen, force: bool) -> None:
    """Make an empty store.

    What is left of a former file is moved to a folder beside it. Former tables are removed.

    For a store that is lost, or damaged beyond recovery, and has no backup.
    """
    if chosen.tables is not None:
        click.echo(chosen.tables.recreate(_confirm(force)))
        return
    layout = chosen.layout
    if not layout.exists:
        raise CommandRefused(f"{layout.directory} is no instance")
    with layout.lock():
        if not force:
            click.confirm(
                f"Begin an empty store at {layout.messages}? No message of the former one stays in use.",
                abort=True,
                err=True,
            )
        make_directory(layout.store)
        aside = layout.aside()
        moved = salvage.recreate(str(layout.messages), str(aside))
    click.echo(f"{layout.messages} is an empty store.")
    if moved:
        click.echo(f"The files of the former one are in {aside}")


def run(arguments: Sequence[str]) -> int:
    """Run the command. :returns: the exit code."""
    return run_command(
        command,
        PROGRAM,
        arguments,
        StoreError,
        SettingsError,
        PassfileError,
        sqlite3.Error,
        aborted="aborted; nothing was changed",
    )


def main() -> None:
    run_to_the_end(run)


def _with_file(chosen: Chosen) -> Layout:
    layout = chosen.layout
    if not layout.messages.exists():
        raise CommandRefused(
            f"{layout.messages} does not exist. Put it back, or restore a backup; {EMPTY_STORE}"
        )
    return layout


def _describe(loss: Loss) -> None:
    found = loss.survey
    if loss.missing:
        click.echo(
            f"{loss.log} is missing, and the store was not closed in order. What was in it is gone: messages that were stored or acknowledged "
            "since its last checkpoint, also with a RECEIPT. What is in the database would be used as it is. If you have the log, put it back."
        )
        return
    certain = (
        "is damaged"
        if found.finding is Finding.DAMAGED
        else "is damaged, or its last commit was never finished,"
    )
    click.echo(f"{loss.log} {certain} at offset {found.place}: {found.what}.")
    click.echo(
        f"What would be given up: {loss.octets} octets, {found.later} frames behind the last good commit, {found.commits} commits. "
        f"As far as they can be read: {loss.arrivals} messages that were stored, and {loss.departures} that were "
        "acknowledged or deleted, which come again."
    )
    if loss.all and found.end:
        click.echo(
            "The database has already been written with some of it. So the log is given up as a whole, and what is in the database stays."
        )
    elif loss.all:
        click.echo(
            "Without its header nothing can be read from the log: all of it is given up, and what is in the database stays."
        )


if __name__ == "__main__":
    main()
