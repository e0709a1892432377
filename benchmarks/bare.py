"""The limits of a transacted link: one client's XA work at its other end.

A process of its own, started and ended here. A consumer counts what it sends, and drains the queue
meanwhile, as one does at a link's target; what it receives it counts itself.
"""

from __future__ import annotations

import functools
import os
import subprocess
import tempfile
import time
from enum import Enum
from time import perf_counter

from benchmarks.backlog import fill
from benchmarks.endpoint import Consumer, Poll, Refused
from benchmarks.jms_bridge import OpenWireActiveMQ
from benchmarks.movers import Way
from benchmarks.peers import ROOT
from benchmarks.process import ProcessTree
from benchmarks.tally import Outcome, Reader, Tally
from bridge.providers.jms.build import JAR, JARS

#: How long the client may take, in seconds.
PATIENCE = 180.0
# How long nothing may arrive, once it has ended, before what is missing is called lost, in seconds.
_SILENCE = 10.0
# Between two looks at the socket, in seconds; see load.py.
_PAUSE = 0.001
_ACTIVEMQ = "/usr/share/activemq/lib/*"


class Program(Enum):
    """The clients: a file of Java each, beside this one."""

    LOOP = "BareXa.java"
    """A plain loop of JMS calls."""
    TURNS = "BareTurns.java"
    """The gateway's own Java classes, one call for many messages."""


def command(program: Program, *arguments: str) -> list[str]:
    """Return the command line of a client.

    :raises Refused: there is no JDK, or it does not compile the client.
    """
    class_path = os.pathsep.join([_compiled(program).name, *_jars(program)])
    # The heap is the gateway's default for its own.
    return ["java", "-Xmx256m", "-cp", class_path, program.value.removesuffix(".java"), *arguments]


@functools.cache
def _compiled(program: Program) -> tempfile.TemporaryDirectory[str]:
    """The client's classes, which go when this process ends.

    ``java BareXa.java`` would compile within the JVM that is measured: what that leaves to the JIT
    compiler is done while messages are timed.
    """
    classes = tempfile.TemporaryDirectory(prefix="stomp-gateway-bench-")
    source = ROOT / "benchmarks" / program.value
    javac = ["javac", "-cp", os.pathsep.join(_jars(program)), "-d", classes.name, str(source)]
    try:
        done = subprocess.run(
            javac, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        raise Refused("there is no javac on the PATH; a JDK is needed") from None
    if done.returncode:
        raise Refused(f"{source} does not compile: {done.stderr[:1500]}")
    return classes


def _jars(program: Program) -> list[str]:
    ours = [str(JARS / JAR)] if program is Program.TURNS else []
    return [*ours, _ACTIVEMQ]


def rate(
    peer: OpenWireActiveMQ,
    program: Program,
    way: Way,
    messages: int,
    batch: int,
    body: int,
    name: str,
) -> float:
    """Return messages a second of one client in XA transactions.

    All are persistent. The client sends (``OUT``), or receives from a queue that was filled before
    (``IN``).

    :param messages: a multiple of 100; as many come before those that are timed.
    :param batch: of one transaction.
    :param name: of a queue not used before; it is empty afterwards.
    :raises Refused: it does not; or what it has sent does not arrive once and in order.
    """
    if way is Way.IN:
        filled = fill(peer, name, body, True, 2 * messages, 60.0)
        if filled.messages < 2 * messages:
            raise Refused(f"{peer.name} took {filled.messages} of {2 * messages} messages in 60 s")
    log = peer.folder / f"{name}.log"
    what = "send" if way is Way.OUT else "receive"
    arguments = command(program, peer.url, name, what, str(messages), str(batch), str(body))
    tally = Tally(1)
    with Poll() as poll:
        consumer = (
            Consumer(poll, peer, f"/queue/{name}", "client", tally, Reader(1))
            if way is Way.OUT
            else None
        )
        client = ProcessTree(arguments, os.environ, ROOT, log)
        try:
            _wait(
                client,
                poll,
                f"{peer.name}: {program.value} did not {what} {2 * messages} messages within {PATIENCE:g} s",
            )
        finally:
            client.kill()
        told = log.read_text(errors="replace")
        try:
            found = float(told.split()[-1])
        except (IndexError, ValueError):
            raise Refused(f"{peer.name}: {program.value} could not {what}: {told[:1500]}") from None
        if consumer is not None:
            _drain(poll, tally, 2 * messages)
            consumer.disconnect()
            if tally.outcome([2 * messages]) != Outcome():
                raise Refused(
                    f"{peer.name}: of {2 * messages} messages that {program.value} sent: {tally.outcome([2 * messages])}"
                )
    return found


def _wait(client: ProcessTree, poll: Poll, late: str) -> None:
    until = perf_counter() + PATIENCE
    while client.alive():
        if perf_counter() > until:
            raise Refused(late)
        poll.turn(0.02)
        time.sleep(_PAUSE)


def _drain(poll: Poll, tally: Tally, messages: int) -> None:
    last, before = perf_counter(), 0
    while tally.distinct < messages and perf_counter() < last + _SILENCE:
        poll.turn(0.05)
        if tally.distinct != before:
            before, last = tally.distinct, perf_counter()
