"""Named points at which a test may have a gateway kill itself.

The test then sees what a crash there leaves.

Owns the hook, the names of all points, and how a test asks for one: by an environment variable for
the whole life of the process, or by orders that it puts into a folder while the process runs.

The code of the product calls :func:`hit` at each point. Unless the process is armed, that is one
look at an empty table. Points are passed on the reactor's thread, on that of the store, and
on those of decision logs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from twisted.logger import Logger

#: The environment variable that names a point of the store or the broker: ``NAME`` or ``NAME:N``,
#: for the N-th time that the point is passed.
STORE_VARIABLE: Final = "STOMP_GATEWAY_CRASH_POINT"
#: The one that names a point of any link or transaction, likewise; or ``@FOLDER``, see
#: :func:`orders`.
LINK_VARIABLE: Final = "STOMP_GATEWAY_LINK_CRASH_POINT"

#: The points of the store and of the broker around it, in the order of a process's life.
StorePoint: TypeAlias = Literal[
    # The store's file is made: on the thread that starts the gateway.
    "store.before-rename",
    "store.after-rename",
    # The store is open, and nothing has been read from it.
    "broker.opened",
    # A batch has been gathered, and the store does not have it yet: on the reactor's thread.
    "broker.before-submit",
    # It is being written: on the store's thread.
    "store.mid-batch",
    "store.before-commit",
    "store.after-commit",
    # A decision log in a database is being written: on the thread of the log. Nothing was sent; the
    # log is written anew, and that is not committed; it is durable, and the coordinator was not told.
    "store.before-decision",
    "store.mid-rewrite",
    "store.after-decision",
    # It is durable, and no client has been told: on the reactor's thread.
    "broker.before-receipts",
    # The RECEIPTs are written to the sockets' buffers, and not yet in the kernel.
    "broker.after-receipts",
    # The log is copied back into the database.
    "store.before-checkpoint",
    "store.after-checkpoint",
    # An orderly stop: the clients are gone.
    "broker.before-close",
    # The store is closed and marked as such.
    "broker.after-close",
]
STORE_POINTS: Final[tuple[str, ...]] = get_args(StorePoint)

#: The points of a link, in the order of the sequence where a message is acknowledged after it was
#: sent. AT_MOST_ONCE passes those of the acknowledgement first.
LinkPoint: TypeAlias = Literal[
    # A batch has been taken from the source, and nothing else has been done.
    "link.after-receive",
    # A message of it is to go to the dead message queues: before the first of them is asked.
    "link.before-bury",
    # A dead message queue has it for good, and the source has not been told.
    "link.after-bury",
    # The target has been given the batch, and has not said that it is durable.
    "link.after-send",
    # The batch is the target's for good, and the source has not been told. In a transaction neither
    # side has anything for good before the decision.
    "link.before-acknowledge",
    # The source has been told, and has not said that this is durable.
    "link.after-acknowledge",
    # It is durable on both sides.
    "link.after-settlement",
]
LINK_POINTS: Final[tuple[str, ...]] = get_args(LinkPoint)

#: The points of one transaction of a transacted link, in the order of its sequence, with those of
#: the link that it passes. The link waits for nothing that it need not wait for: the answer to a
#: start may come after the next request to that session. The next transaction passes its points
#: from ``xa.after-decision`` on, up to its own ``xa.before-decision``, which is after
#: ``xa.after-commit-2``.
OncePoint: TypeAlias = Literal[
    # The source has begun its branch, in which it will receive.
    "xa.after-start-1",
    "link.after-receive",
    # The target has begun its branch, in which it will send.
    "xa.after-start-2",
    "link.after-send",
    "link.before-acknowledge",
    "link.after-acknowledge",
    # Both branches are ended, and no resource manager has been asked to prepare.
    "xa.after-end",
    # One of the two resource managers has answered that its branch is prepared, then the other.
    # Both are asked at once.
    "xa.after-prepare-1",
    "xa.after-prepare-2",
    # Both are prepared, and the log does not have the decision.
    "xa.before-decision",
    # The decision to commit is on the disk, and no resource manager has been told.
    "xa.after-decision",
    # One of the two has answered that its branch is committed, then the other. Both are asked at
    # once.
    "xa.after-commit-1",
    "xa.after-commit-2",
    "link.after-settlement",
    # The log does not have the transaction any more.
    "xa.after-forget",
]
ONCE_POINTS: Final[tuple[str, ...]] = get_args(OncePoint)

#: The name of any point.
Point: TypeAlias = StorePoint | LinkPoint | OncePoint

#: By the variable that asks for one of them, the points.
POINTS: Final[Mapping[str, Sequence[str]]] = {
    STORE_VARIABLE: STORE_POINTS,
    LINK_VARIABLE: tuple(dict.fromkeys((*LINK_POINTS, *ONCE_POINTS))),
}

#: The file of an order, ``NAME:N kill`` or ``NAME:N hold``. Put it there whole: by a rename.
ORDER: Final = "order"
#: The file that says that the process is held.
HELD: Final = "held"

KILL: Final = "kill"
HOLD: Final = "hold"

#: Bytes of log after which an armed store copies it back: few enough that a test gets there.
EARLY_CHECKPOINT_OCTETS: Final = 256 * 1024

_LOOK_S: Final = 0.005

_log = Logger()
_armed: Final[dict[str, Callable[[str], None]]] = {}


def hit(point: Point) -> None:
    """Pass a point. Does nothing unless the process is armed there."""
    if _armed and (act := _armed.get(point)) is not None:
        act(point)


def arm(points: Iterable[str], act: Callable[[str], None]) -> None:
    """Call ``act`` with the name of each of these points when it is passed."""
    _armed.update(dict.fromkeys(points, act))


def disarm() -> None:
    """Do nothing at any point from now on. Idempotent."""
    _armed.clear()


def arm_as_asked(variable: str) -> bool:
    """Arm the point that this environment variable asks for.

    Log a warning, too.

    :param variable: one of :data:`POINTS`.
    :returns: whether it asks for one.
    :raises ValueError: it asks for what there is not.
    """
    text = os.environ.get(variable, "")
    if not text:
        return False
    arm(POINTS[variable], asked(variable, text))
    _log.warn(
        "{variable}={point}: this process will kill itself there", variable=variable, point=text
    )
    return True


def asked(variable: str, text: str) -> Callable[[str], None]:
    """Return what to call at each point, where the variable has this value.

    :raises ValueError: there is no such point, no such number, or no such folder.
    """
    if variable == LINK_VARIABLE and text.startswith("@"):
        return orders(variable, Path(text[1:]))
    return _suicide(variable, text)


def orders(variable: str, folder: Path) -> Callable[[str], None]:
    """Follow the orders of a folder.

    Look for one at each point, and do it when N points passed.

    To *kill* is SIGKILL. To *hold* is that the call does not return until the order is taken away;
    :data:`HELD` is there meanwhile. Nothing else happens on that thread then, so that others can
    die at exactly this point.

    :param folder: where orders are put, one at a time. What this returns raises ValueError for an
        order that it does not understand.
    :raises ValueError: there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"{variable}: expected a folder behind the @, and {folder} is none")
    order, held = folder / ORDER, folder / HELD
    given, name, act, left = "", "", "", 0

    def passed(point: str) -> None:
        nonlocal given, name, act, left
        try:
            text = order.read_text()
        except FileNotFoundError:
            given = ""
            return
        if text != given:
            given = text
            where, _, act = text.partition(" ")
            if act not in (KILL, HOLD):
                raise ValueError(f"{order}: {text!r}: expected NAME:N {KILL} or NAME:N {HOLD}")
            name, left = _point(str(order), POINTS[variable], where)
        if point != name:
            return
        left -= 1
        if left:
            return
        if act == KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        held.touch()
        while order.exists():
            time.sleep(_LOOK_S)
        held.unlink()

    return passed


def _suicide(variable: str, text: str) -> Callable[[str], None]:
    """Kill the process by SIGKILL at the N-th passing of its point."""
    name, left = _point(variable, POINTS[variable], text)

    def passed(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return passed


def _point(asked: str, points: Sequence[str], text: str) -> tuple[str, int]:
    """Return which point is meant, and the N.

    :param asked: where ``text`` is from.
    """
    name, colon, times = text.partition(":")
    if name not in points:
        raise ValueError(f"{asked}={text}: expected one of {', '.join(points)}")
    if colon and not (times.isascii() and times.isdecimal() and int(times)):
        raise ValueError(f"{asked}={text}: expected a number from 1 after the colon")
    return name, int(times or 1)
