"""The ``imqdbmgr`` command.

Owns the command line: options, the question, what is printed, exit codes. The store's files are
:mod:`gateway.broker.store`'s.

Exit codes: 0 done, or in order; 1 it could not be done, or ``query`` or ``check`` found damage; 2
the command line is wrong. An error is one line on the standard error.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from time import gmtime, strftime
from typing import Final

import click

from gateway.broker.store.integrity import inspection, salvage
from gateway.broker.store.integrity.opening import EMPTY_STORE
from gateway.broker.store.integrity.salvage import Loss
from gateway.broker.store.integrity.wal import Finding
from gateway.broker.store.interface import BranchRow, StoreError
from gateway.broker.xa.branch import restored
from gateway.instance.command_line import CommandRefused, run_command, with_instance
from gateway.instance.layout import Layout, make_directory

PROGRAM: Final = "imqdbmgr"


@click.group()
def command() -> None:
    """Look after the message store of an instance whose gateway is stopped."""


@command.command()
@with_instance
def query(varhome: Path, instance: str) -> int:
    """Say whether the store's log is in order, and what would be lost.

    Nothing is changed.
    """
    layout = _layout(varhome, instance)
    with layout.lock():
        loss = salvage.look(str(layout.messages))
    if loss is None:
        click.echo(f"The log of {layout.messages} is in order.")
        return 0
    _describe(loss)
    return 1


@command.command()
@with_instance
def check(varhome: Path, instance: str) -> int:
    """Read the whole store and list all damage, with its place.

    Nothing is changed.
    """
    layout = _layout(varhome, instance)
    with layout.lock():
        report = inspection.inspect(str(layout.messages), _work)
    for problem in report.problems:
        click.echo(problem)
    if report.problems:
        click.echo(
            f"{layout.messages} is damaged: {len(report.problems)} problems. Of its messages {report.messages} were looked at."
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


def _work(row: BranchRow) -> tuple[Sequence[int], Sequence[tuple[int, int]]]:
    _, sent, taken = restored(row)
    return sent, taken


@command.command()
@with_instance
@click.option("-f", "force", is_flag=True, help="Do not ask.")
def recover(force: bool, varhome: Path, instance: str) -> None:
    """Make a store whose log is damaged usable again.

    What follows the last good commit is given up.

    What is given up is said first. The files are copied beside the store before anything is
    changed.
    """
    layout = _layout(varhome, instance)
    path = str(layout.messages)
    with layout.lock():
        loss = salvage.look(path)
        if loss is None:
            click.echo(f"The log of {path} is in order; nothing was done.")
            return
        _describe(loss)
        if not force:
            click.confirm("Give this up?", abort=True, err=True)
        aside = layout.directory / strftime("store.%Y%m%dT%H%M%SZ", gmtime())
        count = salvage.recover(path, loss, str(aside))
    click.echo(f"The store has {count} persistent messages. The files as they were are in {aside}")


@command.command()
@with_instance
@click.option("-f", "force", is_flag=True, help="Do not ask.")
def recreate(force: bool, varhome: Path, instance: str) -> None:
    """Make an empty store.

    What is left of the former one is moved to a folder beside it.

    For a store that is lost, or damaged beyond recovery, and has no backup.
    """
    layout = Layout(varhome.absolute(), instance)
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
        aside = layout.directory / strftime("store.%Y%m%dT%H%M%SZ", gmtime())
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
        sqlite3.Error,
        aborted="aborted; nothing was changed",
    )


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def _layout(varhome: Path, instance: str) -> Layout:
    layout = Layout(varhome.absolute(), instance)
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
