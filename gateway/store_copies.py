"""Backups of an instance whose messages are in a file.

Part of the composition: it joins the store's files with the decision logs of bridges. Owns which
files a backup has, and which of two logs goes on after a restore.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from bridge.xa.errors import LogDamaged
from bridge.xa.log.contents import LogCopy
from gateway.broker.operator.log_states import LogState, listed
from gateway.broker.store.integrity import online, opening
from gateway.broker.store.integrity.inspection import Work
from gateway.broker.store.interface import StoreError
from gateway.instance.layout import (
    TRANSACTION_LOG,
    InstanceLocked,
    Layout,
    make_directory,
    replace,
    sync_directory,
    transaction_log_name,
)
from gateway.transaction_log import PlainLog

#: Called with a question; raises where the answer is no.
Confirm = Callable[[str], None]


def read_log(data: bytes, name: str, whole: bool) -> LogCopy:
    """Read a decision log, as an operator's command does.

    :raises StoreError: it is damaged.
    """
    try:
        return LogCopy(data, name, whole)
    except LogDamaged as damaged:
        raise StoreError(str(damaged)) from damaged


def backup(layout: Layout, folder: Path, work: Work) -> str:
    """Copy the store and the decision logs of an instance to ``folder``.

    Its gateway may run; one that does not cannot start meanwhile. Returns what was done.

    :param work: reads branches, whose encoding is the broker's.
    :raises StoreError: the folder has such a file, or what is to be copied is damaged.
    :raises OSError: the folder or a file cannot be made.
    """
    _check_is_another(layout, folder)
    if not layout.messages.exists():
        raise StoreError(f"{layout.messages} does not exist")
    make_directory(folder)
    target = folder / layout.messages.name
    with ExitStack() as stack:
        try:
            stack.enter_context(layout.lock())
            ended = True
        except InstanceLocked:
            ended = False
        count = online.backup(str(layout.messages), str(target), work)
        # After the messages: the log knows what was decided of all branches that the copy has.
        try:
            logs = _logs(layout)
            for name, log in logs.items():
                _make(folder / transaction_log_name(name), log.encoded(ended))
        except BaseException:
            target.unlink()
            raise
    said = [f"{target} has all that {layout.messages} had: {count} messages."]
    if logs:
        said.append(f"Beside it are the transaction logs of the bridges: {_listed(logs)}.")
        if not ended:
            said.append(
                "The gateway ran meanwhile: where these logs go on, they leave alone what it prepares, and do not know to be decided."
            )
    return "\n".join(said)


def restore(layout: Layout, folder: Path, work: Work, confirm: Confirm) -> str:
    """Replace the store and the decision logs of an instance by a copy.

    Logs without a file in ``folder`` stay. Returns what was done.

    :raises StoreError: the copy is not whole; or a log of the instance may have gone on since its
        copy was made. Nothing has changed.
    :raises InstanceLocked: the gateway runs.
    :raises OSError: a file cannot be moved.
    """
    _check_is_another(layout, folder)
    source = folder / layout.messages.name
    if not source.exists():
        raise StoreError(f"{source} does not exist")
    make_directory(layout.store)
    with layout.lock():
        come = _coming(layout, folder)
        confirm(f"Replace all that is in {layout.messages}, by what {source} has?")
        aside = layout.aside()
        count, moved = online.restore(str(source), str(layout.messages), str(aside), work)
        opening.mark_as_made(str(layout.store_made))
        for name, log in come.items():
            # Where the bridge looks for it when it starts.
            replace(layout.store / transaction_log_name(name), log.octets)
            layout.transaction_log(name).unlink(missing_ok=True)
    said = [f"{layout.messages} has all that {source} has: {count} messages."]
    if moved:
        said.append(f"The files of the former one are in {aside}")
    if come:
        said.append(f"The transaction logs of these bridges go on: {_listed(come)}.")
    return "\n".join(said)


def _check_is_another(layout: Layout, folder: Path) -> None:
    if folder.resolve() == layout.store.resolve():
        raise StoreError(f"{folder} is the store itself; give another folder")


def _logs(layout: Layout) -> dict[str, LogCopy]:
    """The decision logs of an instance by bridge."""
    names = {folder.name for folder in layout.bridges.glob("*") if folder.is_dir()}
    names |= {
        path.name.removeprefix(TRANSACTION_LOG) for path in layout.store.glob(f"{TRANSACTION_LOG}*")
    }
    found = {}
    for name in sorted(names):
        files = PlainLog(layout, name).files()
        if files:
            found[name] = read_log(files[0].read_bytes(), str(files[0]), False)
    return found


def _coming(layout: Layout, folder: Path) -> Mapping[str, LogCopy]:
    """The logs of a backup that are to go on.

    :raises StoreError: one is damaged, or is not what the instance's own went on from.
    """
    own, come = _logs(layout), {}
    for path in sorted(folder.glob(f"{TRANSACTION_LOG}*")):
        name = path.name.removeprefix(TRANSACTION_LOG)
        transaction_log_name(name)
        log, here = read_log(path.read_bytes(), str(path), False), own.get(name)
        if here is not None and here.is_copy_of(log):
            continue
        if here is not None and not log.continues(here):
            raise StoreError(
                f"bridge {name} has two transaction logs, and each may have decided what the other does not know: {path}, and "
                f"{PlainLog(layout, name).files()[0]}. To go on with the one of the instance, move {path} away; to go on with the copy, "
                f"remove the other: 'imqdbmgr remove jmsbridge -n {name}'"
            )
        come[name] = log
    return come


def _listed(logs: Mapping[str, LogCopy]) -> str:
    return listed([LogState(name, log.unfinished, "") for name, log in logs.items()])


def _make(path: Path, octets: bytes) -> None:
    """Make a file that is not there yet.

    :raises StoreError: it is.
    """
    if path.exists():
        raise StoreError(f"{path} is there already: move it away, or give another folder")
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    replace(beside, octets)
    beside.rename(path)
    sync_directory(path.parent)
