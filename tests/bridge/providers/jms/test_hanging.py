"""Java calls that hang are abandoned, and hold up nothing: not the reactor, not a stop, not another
connection, not the end of the gateway.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import LoopingCall

from bridge.providers.jms.provider import JMSProvider
from gateway.messaging.destination import Queue
from gateway.messaging.errors import OutcomeUnknown, ProviderUnavailable
from gateway.messaging.message import Headers, Message
from gateway.messaging.provider import Connection, ConsumerSpec, Flags, Mode, Xid
from tests.bridge.providers.jms.branches import provider_at
from tests.bridge.providers.jms.stubs import (
    GUEST,
    compiled,
    control,
    not_lost,
    send,
    stub_provider,
    texts,
    told,
    unavailable,
)
from tests.contract.waiting import LONGEST_WAIT, until
from tests.on_reactor import on_reactor

ROOT = Path(__file__).parents[4]

#: Seconds that a call hangs of which the reactor must not wait for more than the half, by what
#: another process counts.
HANGING: Final = 8.0
HELD_UP: Final = 400
#: Seconds after which a call is abandoned, which it hangs by then on a busy machine, too.
SOON: Final = 1.0
#: Seconds that are never reached by who does not wait for a call that hangs.
MUCH: Final = 30.0


@pytest.fixture(scope="module")
def classes() -> Path:
    return compiled("javax")


class Pulse:
    """Counts how often another process woke, each 10 ms, while the reactor did nothing else: a
    machine with much to do delays both.
    """

    def __init__(self) -> None:
        self.longest = 0
        program = "import time\nwhile True: print(end='.', flush=True); time.sleep(0.01)"
        self._beside = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        assert self._beside.stdout is not None
        self._beats = self._beside.stdout
        os.set_blocking(self._beats.fileno(), False)
        self._looping = LoopingCall(self._beat)
        self._looping.start(0.01)

    def _beat(self) -> None:
        self.longest = max(self.longest, len(self._beats.read() or b""))

    def stop(self) -> int:
        self._looping.stop()
        self._beat()
        self._beside.kill()
        self._beside.wait()
        self._beats.close()
        return self.longest


@on_reactor
async def test_a_port_that_accepts_and_stays_silent(classes: Path) -> None:
    other = await stub_provider(classes).connect(GUEST, None, not_lost)
    await _works(other)
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        provider = provider_at(
            port.getsockname()[1], "ConnectionFactory", connect_timeout_s=HANGING
        )
        # Nobody listens yet. Its process has its classes then.
        await unavailable(provider, "refused", "mine")
        port.listen(16)
        pulse = Pulse()
        began = time.monotonic()
        await unavailable(provider, r"connecting did not return within 8 s", "mine")
        assert HANGING - 0.1 < time.monotonic() - began < HANGING + 11
        assert (provider.hung.count, provider.hung.total) == (1, 1)
        await _works(other)
        await other.close()
        assert pulse.stop() < HELD_UP


@on_reactor
async def test_eight_calls_that_hang_end_the_process_and_nobody_waits(classes: Path) -> None:
    provider = stub_provider(classes, "hangs", connect_timeout_s=SOON, process="eight")
    await _hang(provider)
    before, total = _pid(provider), provider.hung.total
    # The next call finds another process, where it hangs as well.
    await unavailable(provider, "connecting did not return")
    assert _pid(provider) != before
    assert (provider.hung.count, provider.hung.total) == (1, total + 1)


@on_reactor
async def test_where_others_have_connections_calls_that_hang_are_not_made_again(
    classes: Path,
) -> None:
    provider, beside = (
        stub_provider(classes, "hangs", connect_timeout_s=SOON, process="both"),
        stub_provider(classes, process="both"),
    )
    other = await beside.connect(GUEST, None, not_lost)
    await _hang(provider)
    total = provider.hung.total
    await unavailable(
        provider,
        r"8 calls to it hang, and more are refused .* a property imq\.jms\.process of its own",
    )
    with pytest.raises(ProviderUnavailable, match="8 calls to it hang"):
        await provider.look_up("queue", provider.factory.environment)
    assert provider.hung.total == total
    await _works(other)
    before = _pid(provider)
    await other.close()
    # Now nobody else is harmed.
    await unavailable(provider, "connecting did not return")
    assert _pid(provider) != before


@on_reactor
async def test_a_send_that_hangs_loses_its_connection_and_no_other(classes: Path) -> None:
    provider = stub_provider(classes, send_timeout_s=0.5, close_timeout_s=MUCH)
    lost: Deferred[Exception] = Deferred()
    hanging, other = (
        await provider.connect(GUEST, None, lost.callback),
        await provider.connect(GUEST, None, not_lost),
    )
    stuck, beside = hanging.session(Mode.AUTO), hanging.session(Mode.TRANSACTED)
    stuck.send([Message(Headers(Queue("q"), properties={"hang": True}), b"")])
    waiting = told(stuck.completion)
    assert isinstance(await lost, ProviderUnavailable)
    assert isinstance(await waiting, ProviderUnavailable)
    with pytest.raises(ProviderUnavailable):
        beside.commit(lambda error: None)
    began = time.monotonic()
    await hanging.close()
    assert time.monotonic() - began < MUCH
    await send(other, Queue("other"), b"")
    await other.close()


@on_reactor
async def test_a_commit_that_hangs_has_an_unknown_outcome(classes: Path) -> None:
    lost: Deferred[Exception] = Deferred()
    connection = await stub_provider(classes, send_timeout_s=0.5).connect(
        GUEST, None, lost.callback
    )
    session = connection.session(Mode.TRANSACTED)
    session.send([Message(Headers(Queue("q"), properties={"hang": True}), b"")])
    assert isinstance(await told(session.commit), OutcomeUnknown)
    await lost


@on_reactor
async def test_a_prepare_that_hangs_loses_its_connection(classes: Path) -> None:
    lost: Deferred[Exception] = Deferred()
    connection = await stub_provider(classes, "xa", send_timeout_s=HANGING).connect(
        GUEST, None, lost.callback
    )
    resource, xid = connection.xa_session().resource(), Xid(8, b"hangs", b"1")
    pulse = Pulse()
    started, ended, prepared = (
        resource.start(xid, Flags.NOFLAGS),
        resource.end(xid, Flags.SUCCESS),
        resource.prepare(xid),
    )
    for call in (started, ended, prepared):
        with pytest.raises(ProviderUnavailable, match="did not return"):
            await call
    await lost
    with pytest.raises(ProviderUnavailable):
        await resource.commit(xid, False)
    assert pulse.stop() < HELD_UP


@on_reactor
async def test_closing_does_not_wait_for_a_session_that_hangs(classes: Path) -> None:
    connection = await stub_provider(classes, send_timeout_s=0.5, close_timeout_s=0.5).connect(
        GUEST, None, not_lost
    )
    session = connection.session(Mode.AUTO)
    session.send([Message(Headers(Queue("q"), properties={"hang": True}), b"")])
    began = time.monotonic()
    await connection.close()
    assert time.monotonic() - began < MUCH


@on_reactor
async def test_a_look_up_that_hangs_is_abandoned(classes: Path) -> None:
    provider = stub_provider(classes, "slow", lookup_timeout_s=0.5)
    await unavailable(provider, r"looking up 'slow' did not return within 0\.5 s")
    assert provider.hung.count == 1


@on_reactor
async def test_what_comes_back_too_late_is_counted_and_closed(classes: Path) -> None:
    provider = stub_provider(classes, "hangs", connect_timeout_s=0.3)
    both = [provider.connect(GUEST, None, not_lost) for _ in range(2)]
    for connecting in both:
        with pytest.raises(ProviderUnavailable):
            await connecting
    assert provider.hung.count == 2
    await _let_go(provider)
    assert provider.hung.total == 2


@pytest.mark.parametrize("consumes", [True, False])
@on_reactor
async def test_a_session_whose_call_comes_back_too_late_ends_and_is_counted_no_more(
    classes: Path, consumes: bool
) -> None:
    options: dict[str, Any] = {"process": f"late {consumes}", "send_timeout_s": 0.3}
    provider, beside = stub_provider(classes, "xa", **options), stub_provider(classes, **options)
    # So that the process stays.
    other = await beside.connect(GUEST, None, not_lost)
    for number in range(4 * provider.hung.most):
        # On a busy machine one may be abandoned before it hangs; that one comes back.
        if provider.hung.count == provider.hung.most:
            break
        lost: Deferred[Exception] = Deferred()
        connection = await provider.connect(GUEST, None, lost.callback)
        session = connection.xa_session()
        if consumes:
            session.consumer(ConsumerSpec(Queue("q")), lambda *_: None, lambda error: None)
        resource, xid = session.resource(), Xid(8, b"hangs", bytes([number + 1]))
        calls = (
            resource.start(xid, Flags.NOFLAGS),
            resource.end(xid, Flags.SUCCESS),
            resource.prepare(xid),
        )
        for call in calls:
            with pytest.raises(ProviderUnavailable):
                await call
        await lost
    await unavailable(provider, "8 calls to it hang")
    await _let_go(provider)
    await (await provider.connect(GUEST, None, not_lost)).close()
    await other.close()


@on_reactor
async def test_an_abandoned_session_leaves_nothing_of_itself_behind_once_its_call_has_returned(
    classes: Path,
) -> None:
    options: dict[str, Any] = {"process": "leaves nothing", "send_timeout_s": 0.3}
    provider = stub_provider(classes, "xa", **options)
    # Whoever stays keeps the process, and the connection factory with its branches.
    staying = await provider.connect(GUEST, None, not_lost)
    lost: Deferred[Exception] = Deferred()
    connection = await provider.connect(GUEST, None, lost.callback)
    session = connection.xa_session()
    await session.resource().start(Xid(1, b"abandoned", b"1"), Flags.NOFLAGS)
    session.send([Message(Headers(Queue("q"), properties={"hang": True}), b"")])
    await lost
    assert provider.hung.count == 1
    await _let_go(provider)
    left, until_then = 1, time.monotonic() + LONGEST_WAIT
    while left and time.monotonic() < until_then:
        # Each by a provider of its own, as one that asks again is told what it was told before.
        asking = stub_provider(classes, **options)
        left = int((await asking.look_up("count:sessions", asking.factory.environment)).name)
    assert left == 0
    await staying.close()


async def _works(connection: Connection) -> None:
    await send(connection, Queue("meanwhile"), b"works")
    assert await texts(connection, Queue("meanwhile"), 1) == ["works"]


async def _let_go(provider: JMSProvider) -> None:
    """Whatever hangs in its process returns; wait until that is known."""
    await control(Path(provider.factory.class_path), "release", process=provider.factory.process)
    await until(lambda: provider.hung.count == 0)


async def _hang(provider: JMSProvider) -> None:
    """As many calls as may hang, one after the other."""
    for _ in range(4 * provider.hung.most):
        # On a busy machine one may be abandoned before it hangs; that one comes back.
        if provider.hung.count == provider.hung.most:
            break
        await unavailable(provider, "connecting did not return")


def _pid(provider: JMSProvider) -> int:
    process = provider._supervisor.process
    assert process is not None
    return process.pid


def test_the_process_ends_though_calls_hang(tmp_path: Path) -> None:
    program = """
import sys
from twisted.internet import defer, reactor
from gateway.messaging.provider import Credentials
from tests.bridge.providers.jms.branches import provider_at

provider = provider_at(int(sys.argv[1]), "ConnectionFactory", connect_timeout_s=0.5)

async def main():
    try:
        await provider.connect(Credentials("a", "b"), "c", print)
    except Exception as error:
        print(type(error).__name__)
    reactor.stop()

reactor.callWhenRunning(lambda: defer.ensureDeferred(main()))
reactor.run()
"""
    # It accepts and says nothing.
    with socket.create_server(("127.0.0.1", 0), backlog=16) as port:
        done = subprocess.run(
            [sys.executable, "-c", program, str(port.getsockname()[1])],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=LONGEST_WAIT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    assert (done.returncode, done.stdout) == (0, "ProviderUnavailable\n"), done.stderr
