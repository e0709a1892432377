"""Java processes as the operating system has them: shared, killed, stopped, full, idle, and gone
with the gateway.
"""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import LogEvent, capturedLogs, formatEvent

from bridge.providers.jms import build, process, wire
from bridge.providers.jms.channels import Hung, JavaFailure
from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.java_command import JavaOptions
from bridge.providers.jms.process import JavaProcess, Times
from bridge.providers.jms.provider import JMSProvider
from bridge.providers.jms.supervisor import Supervisor
from bridge.providers.jms.wire import Verb
from gateway.messaging.destination import Queue
from gateway.messaging.errors import ProviderUnavailable
from gateway.messaging.message import BodyType, Headers, Message
from gateway.messaging.provider import ConsumerSpec, Credentials, Mode
from tests.bridge.providers.jms.stubs import (
    GUEST,
    SMALL,
    clock,
    compiled,
    control,
    not_lost,
    received,
    send,
    stub_provider,
    texts,
    told,
    unavailable,
)
from tests.contract.waiting import until
from tests.on_reactor import on_reactor

ROOT: Final = Path(__file__).parents[4]
ENVIRONMENT: Final = {"java.naming.factory.initial": "stub.StubProvider"}


@pytest.fixture(scope="module")
def classes() -> Path:
    return compiled("javax")


def runs(pid: int) -> bool:
    """Whether the process is there and has not ended; who has to collect its status may not have
    done so yet.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def of(provider: JMSProvider) -> JavaProcess:
    found = provider._supervisor.process
    assert found is not None
    return found


async def ask(there: JavaProcess, name: str) -> None:
    """Have the stub's JNDI do something, which gives no connection factory."""
    lane = there.lane(Hung("stub"))
    with pytest.raises(JavaFailure, match="a ConnectionFactory of"):
        await lane.call(
            f"looking up {name}",
            20.0,
            Verb.FACTORY,
            there.number(),
            wire.text(name) + wire.pairs(ENVIRONMENT),
        )
    lane.end()


def failures(logged: Sequence[LogEvent]) -> list[str]:
    return [str(event["log_failure"].value) for event in logged if "log_failure" in event]


class Standing:
    """The reactor with a clock that can stand still.

    So no pause passes by itself.

    :ivar still: what the clock shows then, in seconds.
    """

    def __init__(self) -> None:
        self.still: float | None = None

    def seconds(self) -> float:
        now: float = clock.seconds()
        return now if self.still is None else self.still

    def __getattr__(self, name: str) -> Any:
        return getattr(clock, name)


class Using:
    def __init__(self, there: JavaProcess) -> None:
        self.lost: Deferred[str] = Deferred()
        self.number = there.link(self, self.lost.callback)


# --- which process it is


@on_reactor
async def test_factories_of_equal_options_share_a_process_and_others_do_not(classes: Path) -> None:
    same = [
        stub_provider(classes, process="shared"),
        stub_provider(classes, "xa", process="shared"),
    ]
    others = [
        stub_provider(classes, process="another"),
        stub_provider(classes, process="shared", java_options=("-Xmx100m",)),
        JMSProvider(clock, JMSFactory("cf", ENVIRONMENT, f"{classes}:{ROOT}", SMALL, "shared")),
    ]
    connections = [await one.connect(GUEST, None, not_lost) for one in (*same, *others)]
    pids = [of(one).pid for one in (*same, *others)]
    assert (pids[0], len(set(pids))) == (pids[1], 4)
    for connection in connections:
        await connection.close()


@on_reactor
async def test_it_is_not_started_before_it_is_needed_and_once_for_all_that_ask_meanwhile(
    classes: Path,
) -> None:
    java = Supervisor(clock, JavaOptions(str(classes), options=SMALL))
    assert java.process is None
    both = java.running(30), java.running(30)
    first, second = [await one for one in both]
    assert first is second is java.process
    first.close()


@on_reactor
async def test_it_leaves_the_terminals_group_and_shows_no_secrets(classes: Path) -> None:
    provider = JMSProvider(
        clock,
        JMSFactory(
            "cf",
            {**ENVIRONMENT, "java.naming.security.credentials": "quiet-jndi"},
            str(classes),
            ("-Dstub.password.word=quiet-property", "-Xmx100m"),
        ),
    )
    connection = await provider.connect(Credentials("guest", "quiet-passcode"), None, not_lost)
    assert await provider.look_up(
        "property:stub.password.word", provider.factory.environment
    ) == Queue("quiet-property")
    pid = of(provider).pid
    shown = Path(f"/proc/{pid}/cmdline").read_bytes() + Path(f"/proc/{pid}/environ").read_bytes()
    assert b"-Xmx100m" in shown
    assert b"quiet" not in shown
    assert os.getsid(pid) == pid, "Ctrl-C would end it before links have stopped"
    await connection.close()


@on_reactor
async def test_other_classes_of_the_gateway_before_its_own_are_refused(
    tmp_path: Path, classes: Path
) -> None:
    older = tmp_path / "stomp-gateway-jms.jar"
    with zipfile.ZipFile(build.JARS / build.JAR) as own, zipfile.ZipFile(older, "w") as made:
        for name in own.namelist():
            made.writestr(
                name, b"0123\njavac 8\n" if name == "META-INF/made-of" else own.read(name)
            )
    provider = JMSProvider(clock, JMSFactory("cf", ENVIRONMENT, f"{older}:{classes}", SMALL))
    await unavailable(
        provider,
        r"another stomp-gateway-jms\.jar stands before the gateway's own on the class path",
    )


# --- how it fails to start


@on_reactor
async def test_options_that_java_refuses_are_told_in_its_words(classes: Path) -> None:
    provider = stub_provider(classes, java_options=("-Xmx64m", "-XX:NoSuchOption"))
    await unavailable(
        provider, r"Java ended with exit status 1: .*Unrecognized VM option 'NoSuchOption'"
    )


def no_java(folder: Path, script: str) -> JavaOptions:
    command = folder / "java"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return JavaOptions(java=str(command))


@on_reactor
async def test_one_that_does_not_start_in_time_is_waited_for_no_longer_and_ended(
    tmp_path: Path,
) -> None:
    java = Supervisor(clock, no_java(tmp_path, "exec sleep 60"), Times(starting=2.0))
    with pytest.raises(ProviderUnavailable, match=r"Java did not start within 0\.1 s"):
        await java.running(0.1)
    there = java.process
    assert there is not None, "it may yet start"
    with pytest.raises(ProviderUnavailable, match="Java did not start within 2 s"):
        await java.running(50)
    await until(lambda: not runs(there.pid))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "printf '\\000\\000\\000\\001junk of somebody' >&0; exec sleep 60",
            "the Java process sent a frame that is not understood: a frame of 1 bytes",
        ),
        ("exec sleep 60 <&-", "Java has closed its connection"),
        ("exit 3", "Java ended with exit status 3, without any output"),
        ("echo one; echo two >&2; exit 3", "Java ended with exit status 3: .*two"),
    ],
)
@on_reactor
async def test_what_is_no_java_of_ours_is_told_and_ended(
    tmp_path: Path, script: str, reason: str
) -> None:
    java = Supervisor(clock, no_java(tmp_path, script), Times(ending=0.2))
    asked = java.running(50)
    there = java.process
    assert there is not None
    with pytest.raises(ProviderUnavailable, match=reason):
        await asked
    await until(lambda: not runs(there.pid))


@on_reactor
async def test_a_machine_that_can_start_nothing_is_told_and_tried_again(classes: Path) -> None:
    provider = stub_provider(classes, process="no files")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Each new descriptor would have a number beyond it.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        await unavailable(
            provider,
            r"Java cannot be started: the gateway's machine refuses another process: .*Too many open files",
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    await (await provider.connect(GUEST, None, not_lost)).close()


@on_reactor
async def test_secret_options_beyond_a_frame_are_told_with_the_setting_to_change(
    classes: Path,
) -> None:
    provider = stub_provider(classes, java_options=("-Xmx64m", "-Dpassword=" + "x" * wire.LONGEST))
    with pytest.raises(
        ProviderUnavailable,
        match=r"system properties with names of secrets \(-D in imq\.jms\.jvmOptions\) are too long: HELLO of \d+ bytes: expected at most",
    ) as refused:
        await provider.connect(GUEST, None, not_lost)
    assert "xxxx" not in str(refused.value)


@on_reactor
async def test_one_that_does_not_understand_the_gateway_ends_and_says_why(classes: Path) -> None:
    java = Supervisor(clock, JavaOptions(str(classes), options=SMALL))
    there = await java.running(30)
    using = Using(there)
    there.write(bytes(9))
    reason = await using.lost
    assert reason.startswith(
        "Java ended with exit status 70: the connection to the gateway broke: "
    )
    assert "a frame of 0 bytes: expected 5 to 262144" in reason


@on_reactor
async def test_bodies_beyond_the_windows_pass_in_both_directions(classes: Path) -> None:
    connection = await stub_provider(classes).connect(GUEST, None, not_lost)
    queue, bodies = (
        Queue("large"),
        [bytes([number]) * (wire.WINDOW * 3 // 2 + number) for number in range(4)],
    )
    await send(connection, queue, *bodies, body_type=BodyType.BYTES)
    found = await received(connection, ConsumerSpec(queue), len(bodies))
    assert [message.body for message, _ in found] == bodies
    await connection.close()


# --- how it ends


@on_reactor
async def test_one_that_is_killed_loses_its_connections_and_another_takes_its_place(
    classes: Path,
) -> None:
    provider, unharmed = stub_provider(classes, process="killed"), stub_provider(classes)
    found = await provider.look_up("found by JNDI", provider.factory.environment)
    losses: list[Deferred[Exception]] = [Deferred(), Deferred()]
    one, other = [await provider.connect(GUEST, None, loss.callback) for loss in losses]
    beside = await unharmed.connect(GUEST, None, not_lost)
    session = one.session(Mode.TRANSACTED)
    session.send([Message(Headers(found), b"never committed")])
    assert await told(session.completion) is None
    before = of(provider).pid
    os.kill(before, signal.SIGKILL)
    for loss in losses:
        assert (
            str(await loss) == "the provider is unavailable: the Java process was killed by SIGKILL"
        )
    for connection in (one, other):
        with pytest.raises(ProviderUnavailable, match="killed by SIGKILL"):
            connection.session(Mode.AUTO)
        await connection.close()
    again = await provider.connect(GUEST, None, not_lost)
    assert of(provider).pid != before
    assert not runs(before)
    # Its name alone would not lead there: what JNDI gave is known in the new process, too.
    await send(again, found, b"after")
    assert await texts(again, found, 1) == ["after"]
    await again.close()
    await beside.close()


@on_reactor
async def test_a_name_that_jndi_has_lost_when_java_is_started_anew_fails_for_who_uses_it_alone(
    classes: Path, tmp_path: Path
) -> None:
    provider = stub_provider(classes, process="lost names")
    environment, bound = provider.factory.environment, tmp_path / "bound"
    bound.touch()
    lost: Deferred[Exception] = Deferred()
    await provider.connect(GUEST, None, lost.callback)
    gone, stays = (
        await provider.look_up(f"file:{bound}", environment),
        await provider.look_up("found by JNDI", environment),
    )
    bound.unlink()
    os.kill(of(provider).pid, signal.SIGKILL)
    await lost
    with capturedLogs() as logged:
        connection = await provider.connect(GUEST, None, not_lost)
    # Other tests of this process may have left something that is logged meanwhile.
    [warned] = [text for text in map(str, map(formatEvent, logged)) if "JNDI" in text]
    assert f"'file:{bound}', which JNDI had before Java was restarted, is not found now" in warned
    assert await provider.look_up("found by JNDI", environment) == stays
    await send(connection, stays, b"goes on")
    assert await texts(connection, stays, 1) == ["goes on"]
    # Nothing is made of its name meanwhile; and as soon as it is there it is found.
    for _ in range(2):
        with pytest.raises(ProviderUnavailable, match=f"looking up 'file:{bound}' failed"):
            await provider.look_up(f"file:{bound}", environment)
    bound.touch()
    assert await provider.look_up(f"file:{bound}", environment) == gone
    await send(connection, gone, b"is back")
    assert await texts(connection, gone, 1) == ["is back"]
    # In one process JNDI is asked once.
    bound.unlink()
    assert await provider.look_up(f"file:{bound}", environment) == gone
    await connection.close()


@on_reactor
async def test_what_is_asked_when_it_is_killed_has_an_answer(classes: Path) -> None:
    provider = stub_provider(classes, process="killed while asked")
    lost: Deferred[Exception] = Deferred()
    connection = await provider.connect(GUEST, "mine", lost.callback)
    session = connection.session(Mode.AUTO)
    # What is stopped answers nothing before it is killed.
    os.kill(of(provider).pid, signal.SIGSTOP)
    session.send([Message(Headers(Queue("q"), properties={"hang": True}), b"")])
    sent, found = told(session.completion), provider.look_up("slow", provider.factory.environment)
    unsubscribed = connection.unsubscribe("durable")
    os.kill(of(provider).pid, signal.SIGKILL)
    assert "killed by SIGKILL" in str(await sent)
    for asked in (found, unsubscribed):
        with pytest.raises(ProviderUnavailable, match="killed by SIGKILL"):
            await asked
    await lost
    assert provider.hung.count == 0


@on_reactor
async def test_a_listener_that_fails_keeps_nobody_else_from_hearing_of_the_death(
    classes: Path,
) -> None:
    java = Supervisor(clock, JavaOptions(str(classes), options=SMALL, apart="listeners"))
    there = await java.running(30)

    def defective(reason: str) -> None:
        raise RuntimeError("a defect of one listener")

    there.link(object(), defective)
    using = Using(there)
    lane = there.lane(Hung("stub"))
    asked: Deferred[None] = lane.call(
        "looking up",
        20.0,
        Verb.FACTORY,
        there.number(),
        wire.text("slow") + wire.pairs(ENVIRONMENT),
    )
    with capturedLogs() as logged:
        os.kill(there.pid, signal.SIGKILL)
        assert await using.lost == "the Java process was killed by SIGKILL"
        with pytest.raises(ProviderUnavailable, match="killed by SIGKILL"):
            await asked
    assert failures(logged) == ["a defect of one listener"]


@on_reactor
async def test_a_listener_that_fails_loses_its_own_connection_and_no_other(classes: Path) -> None:
    provider = stub_provider(classes, process="defect")
    lost: Deferred[Exception] = Deferred()
    one, other = (
        await provider.connect(GUEST, None, lost.callback),
        await provider.connect(GUEST, None, not_lost),
    )
    before = of(provider).pid

    def defective(*delivered: Any) -> None:
        raise RuntimeError("a defect of one listener")

    consumer = one.session(Mode.TRANSACTED).consumer(
        ConsumerSpec(Queue("defect")), defective, not_lost
    )
    consumer.grant(1)
    consumer.start()
    with capturedLogs() as logged:
        await send(other, Queue("defect"), b"given back")
        assert "a session failed: a defect of one listener" in str(await lost)
    assert failures(logged) == ["a defect of one listener"]
    # What it was given comes again.
    assert await texts(other, Queue("defect"), 1) == ["given back"]
    await (await provider.connect(GUEST, None, not_lost)).close()
    assert of(provider).pid == before
    await other.close()


@on_reactor
async def test_a_listener_that_fails_when_its_connection_is_lost_loses_no_other(
    classes: Path,
) -> None:
    provider = stub_provider(classes, process="lost defect")
    other = await provider.connect(GUEST, None, not_lost)
    before, heard = of(provider).pid, []

    def defective(error: Exception) -> None:
        heard.append(str(error))
        raise RuntimeError("a defect of one listener")

    one = await provider.connect(GUEST, None, defective)

    def worse(*delivered: Any) -> None:
        raise RuntimeError("a defect of another listener")

    two = await provider.connect(GUEST, None, defective)
    consumer = two.session(Mode.TRANSACTED).consumer(
        ConsumerSpec(Queue("both fail")), worse, not_lost
    )
    consumer.grant(1)
    consumer.start()
    with capturedLogs() as logged:
        one.session(Mode.AUTO).send([Message(Headers(Queue("q"), properties={"lose": True}), b"")])
        other.session(Mode.AUTO).send([Message(Headers(Queue("both fail")), b"")])
        await until(lambda: len(heard) == 2)
    assert [error for error in heard if error.endswith("the cable was cut")]
    assert sorted(failures(logged)) == [
        "a defect of another listener",
        *["a defect of one listener"] * 2,
    ]
    await send(other, Queue("beside"), b"works")
    assert of(provider).pid == before
    await other.close()


@on_reactor
async def test_one_that_dies_again_and_again_is_started_less_often(classes: Path) -> None:
    standing = Standing()
    java = Supervisor(standing, JavaOptions(str(classes), options=SMALL, apart="dies"))

    async def die() -> None:
        there = await java.running(30)
        os.kill(there.pid, signal.SIGKILL)
        await until(lambda: java.process is None)

    await die()
    # At once, the first time.
    standing.still = clock.seconds()
    await die()
    with pytest.raises(
        ProviderUnavailable,
        match=r"the Java process was killed by SIGKILL; it is started again in [01] s",
    ):
        await java.running(30)
    assert java.process is None
    await until(lambda: java._not_before <= clock.seconds())
    standing.still = clock.seconds()
    await die()
    with pytest.raises(ProviderUnavailable, match=r"it is started again in [12] s"):
        await java.running(30)


@on_reactor
async def test_one_that_answers_no_beat_is_ended(classes: Path) -> None:
    java = Supervisor(clock, JavaOptions(str(classes), options=SMALL), Times(beat=0.5, beats=6))
    there = await java.running(30)
    using = Using(there)
    await until(lambda: there.alive is not None)
    os.kill(there.pid, signal.SIGSTOP)
    reason = await using.lost
    assert reason == (
        f"Java (process {there.pid}) has not answered for 3 s and was ended; "
        "it was stopped, or the machine has too little processor time or memory for it"
    )
    await until(lambda: not runs(there.pid))
    assert (await java.running(30)).pid != there.pid


@on_reactor
async def test_one_that_nobody_uses_is_ended(classes: Path) -> None:
    java = Supervisor(
        clock, JavaOptions(str(classes), options=SMALL), Times(beat=0.2, beats=100, idle=0.3)
    )
    there = await java.running(30)
    using = Using(there)
    lane = there.lane(Hung("stub"))
    # For longer than it would stay without them.
    began = clock.seconds()
    await until(lambda: clock.seconds() - began > 0.6)
    there.unlink(using.number)
    await until(lambda: clock.seconds() - began > 1.2)
    assert java.process is there
    lane.end()
    with capturedLogs() as logged:
        await until(lambda: java.process is None)
        await until(lambda: not runs(there.pid))
    assert there.orderly
    assert [event for event in logged if event["log_level"].name != "info"] == []
    again = await java.running(30)
    assert again is not there, "and at once another is started"


@pytest.mark.parametrize("name", ["slow", "hangs"])
@on_reactor
async def test_calls_that_were_abandoned_keep_no_process(classes: Path, name: str) -> None:
    provider = stub_provider(
        classes, name, process=f"abandoned {name}", lookup_timeout_s=0.5, connect_timeout_s=0.5
    )
    java = provider._supervisor
    java._times = Times(idle=0.3)
    await java.running(30)
    there = of(provider)
    await unavailable(provider, "did not return within")
    assert provider.hung.count == 1
    await until(lambda: java.process is None)
    assert there.orderly
    assert provider.hung.count == 0, "it has gone with its process"
    await until(lambda: not runs(there.pid))


PROGRAM = """
import sys
from collections.abc import Sequence
from pathlib import Path
from twisted.internet import defer, reactor
from tests.bridge.providers.jms.stubs import GUEST, stub_provider

async def main(classes):
    provider = stub_provider(Path(classes))
    await provider.connect(GUEST, None, print)
    print(provider._supervisor.process.pid, flush=True)

reactor.callWhenRunning(lambda: defer.ensureDeferred(main(sys.argv[1])))
reactor.run()
"""


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
@on_reactor
async def test_it_ends_with_the_gateway_however_that_ends(
    classes: Path, how: signal.Signals, stopped: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(classes)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as gateway:
        assert gateway.stdout is not None
        pid = int(await deferToThread(gateway.stdout.readline))
        assert runs(pid)
        if stopped:
            os.kill(pid, signal.SIGSTOP)
        gateway.send_signal(how)
        await deferToThread(gateway.wait)
        await until(lambda: not runs(pid))


# --- its memory


@on_reactor
async def test_one_whose_heap_is_full_says_so_and_the_next_fetches_less_ahead(
    classes: Path,
) -> None:
    options: dict[str, Any] = {"process": "full", "java_options": ("-Xmx32m",)}
    provider = stub_provider(classes, **options)
    lost: Deferred[Exception] = Deferred()
    await provider.connect(GUEST, None, lost.callback)
    before = await stub_provider(classes, **options).look_up(
        "property:stompgateway.ahead", provider.factory.environment
    )
    with pytest.raises(ProviderUnavailable, match="its heap of 32 MiB was full"):
        await control(classes, "fill", **options)
    reason = str(await lost)
    assert "Java has run out of memory, as its heap of 32 MiB was full" in reason
    assert "-Xmx in imq.jms.jvmOptions" in reason
    again = await provider.connect(GUEST, None, not_lost)
    after = await stub_provider(classes, **options).look_up(
        "property:stompgateway.ahead", provider.factory.environment
    )
    assert int(after.name) == int(before.name) // 8
    await again.close()


@on_reactor
async def test_one_that_is_silent_with_a_full_heap_says_so_and_the_next_fetches_less_ahead(
    classes: Path,
) -> None:
    provider = stub_provider(classes, process="silent and full")
    java = provider._supervisor
    java._times = Times(beat=0.5, beats=6)
    lost: Deferred[Exception] = Deferred()
    await provider.connect(GUEST, None, lost.callback)
    there = of(provider)
    await ask(there, "control:fill 93")
    await until(lambda: there.alive is not None and there.alive.used > there.alive.heap * 0.92)
    os.kill(there.pid, signal.SIGSTOP)
    assert re.search(
        r"has not answered for 3 s and was ended; \d+ of \d+ MiB of its heap were in use: give it more by -Xmx",
        str(await lost),
    )
    again = await provider.connect(GUEST, None, not_lost)
    ahead = await provider.look_up("property:stompgateway.ahead", provider.factory.environment)
    assert ahead == Queue("125")
    await again.close()


# --- what it prints


@on_reactor
async def test_what_a_client_prints_is_logged_as_far_as_somebody_can_read_it(classes: Path) -> None:
    java = Supervisor(clock, JavaOptions(str(classes), options=SMALL), Times(beat=0.5, beats=100))
    there = await java.running(30)
    using = Using(there)
    with capturedLogs() as logged:

        def lines(start: str) -> list[str]:
            return [line for event in logged if (line := formatEvent(event)).startswith(start)]

        await ask(there, "control:print 1 h\u00e9llo")
        await until(lambda: lines("Java: h\u00e9llo") == ["Java: h\u00e9llo"])
        await ask(there, "control:print 1000 again")

        def left_out() -> int:
            return sum(int(line.split()[1]) for line in lines("Java: ") if "left out" in line)

        await until(lambda: len(lines("Java: again")) + left_out() == 1000)
        assert left_out() > 0
    there.unlink(using.number)
    there.close()


def test_lines_are_put_together_and_cut_off() -> None:
    output = process._Output()
    with capturedLogs() as logged:
        for piece in (
            b"one",
            b" line\nano",
            b"ther\n\n  \n",
            b"x" * 9000,
            b"y\n",
            b"and \xff the rest",
        ):
            output.feed(piece)
        output.finish()
    assert [formatEvent(event) for event in logged] == [
        "Java: one line",
        "Java: another",
        "Java: " + "x" * 4096,
        "Java: and \ufffd the rest",
    ]
    assert output.last.endswith("; and \ufffd the rest")
