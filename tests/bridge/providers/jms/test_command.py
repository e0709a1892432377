"""What is said where something of Java is missing. The JVM itself is started in child processes: a process has one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from bridge.providers.jms.jvm import JVMOptions, expanded

from bridge.providers.jms.failures import ClientMissing
from bridge.providers.jms.settings import SETTINGS, jvm_options
from bridge.settings import JMS_CLASSPATH
from gateway.instance.settings import Settings

ROOT = Path(__file__).parents[4]


def run(program: str, **environment: str) -> str:
    """What a program prints, that may start a JVM of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refused(call: str, before: str = "", **environment: str) -> str:
    """The sentence with which a directory is refused."""
    return run(
        f"""
{before}
from bridge.providers.jms.failures import ClientMissing
from bridge.providers.jms.jvm import JVMOptions, directory
try:
    {call}
except ClientMissing as error:
    print(error)
""",
        **environment,
    )


def test_a_class_path_is_expanded_as_java_does(tmp_path: Path) -> None:
    for name in ("b.jar", "a.JAR", "c.txt"):
        (tmp_path / name).touch()
    folder = tmp_path / "classes"
    folder.mkdir()
    assert expanded("") == ()
    assert expanded(f"{folder}:{tmp_path}/*: :{tmp_path}/c.txt") == tuple(
        str(tmp_path / name) for name in ("classes", "a.JAR", "b.jar", "c.txt")
    )


def test_a_jar_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClientMissing, match=r"gone\.jar is on the class path and does not exist"):
        expanded(f"{tmp_path}/gone.jar")
    with pytest.raises(ClientMissing, match="there are no jars in"):
        expanded(f"{tmp_path}/*")


def test_a_jvm_that_is_missing_is_named(tmp_path: Path) -> None:
    told = refused('directory("", JVMOptions(library="/nowhere/libjvm.so"))')
    assert "no Java virtual machine was found at /nowhere/libjvm.so (imq.jms.jvm)" in told


def test_options_that_the_jvm_refuses_are_named() -> None:
    told = refused('directory("", JVMOptions(options=("-XX:NoSuchOption",)))')
    assert "does not start with options -XX:NoSuchOption" in told


def test_the_process_ends_in_peace_while_java_gives_back_what_it_was_lent() -> None:
    program = """
from bridge.providers.jms import jvm
jvm.directory("", jvm.JVMOptions())
import jpype
for _ in range(20_000):
    jvm.buffer(b"x")
jpype.JClass("java.lang.System").gc()
print("done")
"""
    assert run(program) == "done"


def test_no_part_of_java_is_imported_to_know_the_settings() -> None:
    modules = '("jpype", "lxml.etree", "stompest.protocol")'
    assert run(f"import sys, gateway.configuration; print([name for name in {modules} if name in sys.modules])") == "[]"


def test_the_settings_say_how_it_is_started() -> None:
    declared = (JMS_CLASSPATH, *SETTINGS)
    assert jvm_options(Settings.defaults(declared)) == JVMOptions("", "", ("-Xmx256m",))
    given = ("imq.jms.classpath=/a/*:/b.jar", "imq.jms.jvm=/libjvm.so", "imq.jms.jvmOptions= -Xmx1g  -Dx=y ")
    assert jvm_options(Settings.defaults(declared).with_overrides(given)) == JVMOptions(
        "/a/*:/b.jar", "/libjvm.so", ("-Xmx1g", "-Dx=y")
    )


def test_jpype_that_is_missing_is_named() -> None:
    told = refused('directory("", JVMOptions())', before="import sys; sys.modules['jpype'] = None")
    assert "pip install 'stomp-gateway[jms]'" in told


def test_threads_end_in_peace_where_jpype_is_missing() -> None:
    program = """
import sys
sys.modules["jpype"] = None
from bridge.providers.jms.failures import JPypeMissing
from bridge.providers.jms.jvm import JVMOptions, directory
from bridge.providers.jms.threads import start_thread
def call():
    try:
        directory("", JVMOptions())
    except JPypeMissing:
        print("missing")
sys.stderr = sys.stdout
start_thread("connection 1", call, lambda: None).join()
"""
    assert run(program) == "missing"


def test_the_class_path_is_told_where_a_class_is_missing() -> None:
    program = """
from twisted.internet import reactor
from bridge.providers.jms.jvm import JVMOptions
from bridge.providers.jms.provider import JMSFactory, JMSProvider
from gateway.messaging.provider import Credentials

def told(failure):
    print(failure.type.__name__, failure.value)

async def both():
    environment = {"java.naming.factory.initial": "no.such.Factory"}
    for own, common in (("", ""), ("", "/tmp"), ("/usr", "")):
        provider = JMSProvider(reactor, JMSFactory("x", environment, own), JVMOptions(common))
        await provider.connect(Credentials("", ""), None, print).addErrback(told)
    reactor.stop()

from twisted.internet.defer import Deferred
reactor.callWhenRunning(lambda: Deferred.fromCoroutine(both()))
reactor.run()
"""
    lines = run(program).splitlines()
    assert all(line.startswith("ClientMissing ") and "no.such.Factory" in line for line in lines)
    assert [line.partition("; ")[2].rpartition("; ")[2] or line for line in lines] == [
        "imq.jms.classpath is empty, and the connection factory has no property imq.jms.classpath",
        "imq.jms.classpath is /tmp, and the connection factory has no property imq.jms.classpath",
        "property imq.jms.classpath of the connection factory is /usr, and the setting imq.jms.classpath is empty",
    ]


def test_the_jvm_is_started_once_without_signals_of_its_own() -> None:
    told = run(
        """
import signal, sys
from bridge.providers.jms.jvm import JVMOptions, directory
import bridge.providers.jms.provider
assert "jpype" not in sys.modules, "imported before it is needed"
before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
first = directory("", JVMOptions(options=("-Xmx64m",)))
again = directory("", JVMOptions(options=("-Xmx32m",)))
import jpype
arguments = jpype.JClass("java.lang.management.ManagementFactory").getRuntimeMXBean().getInputArguments()
assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
print(first == again, [str(one) for one in arguments if str(one).startswith("-X")])
"""
    )
    assert told == "True ['-Xrs', '-Xmx64m']"
