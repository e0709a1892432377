"""How Java is started, and what is said where something of it is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from bridge.config.settings import JMS_CLASSPATH
from bridge.providers.jms import build
from bridge.providers.jms.connection import JMSFactory
from bridge.providers.jms.failures import ClientMissing, JavaMissing
from bridge.providers.jms.java_command import (
    SETTINGS,
    Command,
    JavaOptions,
    command,
    expanded,
    java_options,
)
from bridge.providers.jms.provider import JMSProvider
from gateway.instance.memory import host_memory
from gateway.instance.settings import Setting, read
from gateway.instance.settings_general import MEMORY_BUDGET
from gateway.messaging.errors import ProviderUnavailable
from tests.bridge.providers.jms.stubs import GUEST, SMALL, clock
from tests.on_reactor import on_reactor

ROOT: Final = Path(__file__).parents[4]
MIB: Final = 1 << 20


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Java home with a command that could be run, and a JVM."""
    folder = tmp_path / "java-home"
    for part, mode in (("bin/java", 0o755), ("lib/server/libjvm.so", 0o644)):
        path = folder / part
        path.parent.mkdir(parents=True)
        path.touch()
        path.chmod(mode)
    return folder


def made(options: JavaOptions, taken: tuple[int, ...] = (), **environment: str) -> Command:
    return command(options, taken, environment)


def java_of(made: Command) -> str:
    return made.arguments[5]


# --- the class path


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


def test_the_gateways_jar_is_the_last_on_the_class_path(home: Path, tmp_path: Path) -> None:
    options = JavaOptions(f"{tmp_path}/*", java=str(home))
    (tmp_path / "client.jar").touch()
    arguments = made(options).arguments
    assert (
        arguments[arguments.index("-cp") + 1] == f"{tmp_path}/client.jar:{build.JARS / build.JAR}"
    )
    assert arguments[-2:] == ["stompgateway.jms.Main", str(1024 * MIB)]


def test_a_factory_has_its_own_class_path_before_the_common_one() -> None:
    common = JavaOptions("/common", "/java", ("-Xmx1g",), 5, "")
    assert common.of_factory(" /own ", None, "") == JavaOptions(
        "/own:/common", "/java", ("-Xmx1g",), 5, ""
    )
    assert common.of_factory("", ("-Xmx2g",), "mine") == JavaOptions(
        "/common", "/java", ("-Xmx2g",), 5, "mine"
    )
    assert JavaOptions().of_factory(" ", None, "") == JavaOptions()


# --- the java command


@pytest.mark.parametrize("given", ["bin/java", "", "lib/server/libjvm.so"])
def test_java_is_named_by_its_command_its_home_or_its_jvm(home: Path, given: str) -> None:
    assert java_of(made(JavaOptions(java=str(home / given)), PATH="/nowhere")) == str(
        home / "bin/java"
    )


def test_a_jvm_that_lies_deeper_as_in_java_8_leads_to_the_command(home: Path) -> None:
    library = home / "jre/lib/amd64/server/libjvm.so"
    library.parent.mkdir(parents=True)
    library.touch()
    assert java_of(made(JavaOptions(java=str(library)))) == str(home / "bin/java")


def test_without_a_name_it_is_that_of_the_environment_or_of_the_path(home: Path) -> None:
    assert java_of(made(JavaOptions(), JAVA_HOME=str(home), PATH="/nowhere")) == str(
        home / "bin/java"
    )
    assert java_of(made(JavaOptions(), JAVA_HOME="/gone", PATH=f"/nowhere:{home}/bin")) == str(
        home / "bin/java"
    )
    assert java_of(made(JavaOptions(), PATH=f"/nowhere:{home}/bin")) == str(home / "bin/java")


def test_a_java_that_is_missing_is_told_with_what_to_do(home: Path) -> None:
    (home / "bin/java").chmod(0o644)
    for given in (
        "/nowhere/libjvm.so",
        str(home),
        str(home / "bin/java"),
        str(home / "lib/server/libjvm.so"),
    ):
        with pytest.raises(JavaMissing) as missing:
            made(JavaOptions(java=given))
        assert (
            f"no Java was found at {given} (imq.jms.jvm): expected a java command, a Java home, or a libjvm"
            in str(missing.value)
        )
    with pytest.raises(
        JavaMissing,
        match=r"by JAVA_HOME or on the PATH; install a Java runtime, 8 or later, or name one by imq\.jms\.jvm",
    ):
        made(JavaOptions(), PATH="/nowhere", JAVA_HOME=str(home))


# --- its options


def test_settings_of_the_system_are_not_on_the_command_line(home: Path) -> None:
    options = (
        "-Djavax.net.ssl.keyStorePassword=value=1",
        "-Xss1m",
        "-Dfile.encoding=UTF-8",
        "-XX:+UseSerialGC",
        "-Dmy.secret",
    )
    found = made(JavaOptions(java=str(home), options=options))
    assert found.properties == {"javax.net.ssl.keyStorePassword": "value=1", "my.secret": ""}
    # Java reads some of the others before anybody could tell it.
    assert [one for one in found.arguments if one in options] == [
        "-Xss1m",
        "-Dfile.encoding=UTF-8",
        "-XX:+UseSerialGC",
    ]


def test_it_is_started_by_an_interpreter_that_reads_nothing_of_the_users(home: Path) -> None:
    first = made(JavaOptions(java=str(home))).arguments[:4]
    assert first == [sys.executable, "-I", "-S", str(ROOT / "bridge/providers/jms/launch.py")]


@pytest.mark.parametrize(
    ("option", "heap"),
    [
        ("-Xmx32m", 32 * MIB),
        ("-Xmx2G", 2048 * MIB),
        ("-Xmx1048576", MIB),
        ("-Xmx2048K", 2 * MIB),
        ("-XX:MaxHeapSize=3g", 3072 * MIB),
        ("-XX:MaxHeapSize=1t", MIB * MIB),
    ],
)
def test_a_heap_that_is_asked_for_is_that_of_the_process(
    home: Path, option: str, heap: int
) -> None:
    found = made(
        JavaOptions(java=str(home), options=("-Xmx5m", option), heaps=64 * MIB), taken=(1 << 40,)
    )
    assert found.heap == heap
    assert [one for one in found.arguments if one.startswith(("-Xmx", "-XX:MaxHeapSize"))] == [
        "-Xmx5m",
        option,
    ]


@pytest.mark.parametrize(
    ("together", "taken", "heap"),
    [
        # At most 1 GiB, at most half of all, and what others leave.
        (8192, (), 1024),
        (1000, (), 500),
        (1000, (500,), 500),
        (1000, (500, 400), 100),
        (4096, (1024, 1024, 1024), 1024),
        (128, (), 64),
    ],
)
def test_a_heap_that_nobody_asked_for_shares_what_all_may_have(
    home: Path, together: int, taken: tuple[int, ...], heap: int
) -> None:
    options = JavaOptions(java=str(home), heaps=together * MIB + 5)
    found = made(options, tuple(one * MIB for one in taken))
    assert found.heap == heap * MIB
    assert f"-Xmx{heap}m" in found.arguments


@pytest.mark.parametrize(
    ("options", "collectors"),
    [
        ((), ["-XX:+UseSerialGC"]),
        (("-Xmx1g",), ["-XX:+UseSerialGC"]),
        (("-Xmx1025m",), []),
        (("-XX:+UseZGC",), ["-XX:+UseZGC"]),
        (("-Xmx4g", "-XX:+UseParallelGC"), ["-XX:+UseParallelGC"]),
    ],
)
def test_a_small_heap_has_the_serial_collector_where_no_other_is_asked_for(
    home: Path, options: tuple[str, ...], collectors: list[str]
) -> None:
    found = made(JavaOptions(java=str(home), options=options))
    assert [one for one in found.arguments if one.endswith("GC")] == collectors


@pytest.mark.parametrize(("together", "taken"), [(1000, (500, 437)), (127, ()), (1000, (2000,))])
def test_where_too_little_is_left_that_is_told(
    home: Path, together: int, taken: tuple[int, ...]
) -> None:
    with pytest.raises(ProviderUnavailable) as refused:
        made(JavaOptions(java=str(home), heaps=together * MIB), tuple(one * MIB for one in taken))
    assert (
        f"{len(taken)} of them have heaps of {sum(taken)} MiB, and all together may have {together} MiB"
        in str(refused.value)
    )
    assert "give them smaller heaps by -Xmx in imq.jms.jvmOptions" in str(refused.value)
    assert not isinstance(refused.value, ClientMissing), "it may be better later"


# --- the settings


def test_the_settings_say_how_it_is_started() -> None:
    declared: list[Setting[Any]] = [JMS_CLASSPATH, MEMORY_BUDGET, *SETTINGS]
    memory = host_memory.memory()
    heaps = host_memory.java_heaps(memory, host_memory.default_budget(memory))
    assert java_options(read(declared, None)[0]) == JavaOptions("", "", (), heaps, "")
    given = (
        "imq.jms.classpath=/a/*:/b.jar",
        "imq.jms.jvm=/libjvm.so",
        "imq.jms.jvmOptions= -Xmx1g  -Dx=y ",
    )
    assert java_options(read(declared, None)[0].with_overrides(given)) == JavaOptions(
        "/a/*:/b.jar", "/libjvm.so", ("-Xmx1g", "-Dx=y"), heaps, ""
    )


def test_nothing_that_starts_java_is_imported_to_know_the_settings() -> None:
    program = """
import sys, gateway.configuration
print([name for name in ("bridge.providers.jms.process", "bridge.providers.jms.wire", "lxml.etree") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    assert done.stdout.strip() == "[]"


# --- what is said of it


@on_reactor
async def test_who_connects_is_told_that_java_or_a_jar_is_missing() -> None:
    factory = JMSFactory("x", {}, "")
    with pytest.raises(JavaMissing, match=r"no Java was found at /nowhere \(imq\.jms\.jvm\)"):
        await JMSProvider(clock, factory, JavaOptions(java="/nowhere")).connect(GUEST, None, print)
    with pytest.raises(
        ClientMissing, match=r"/nowhere\.jar is on the class path and does not exist"
    ):
        await JMSProvider(clock, factory, JavaOptions("/nowhere.jar")).connect(GUEST, None, print)


@pytest.mark.parametrize(
    ("own", "common", "told"),
    [
        (
            "",
            "",
            "imq.jms.classpath is empty, and the connection factory has no property imq.jms.classpath",
        ),
        (
            "",
            "/tmp",
            "imq.jms.classpath is /tmp, and the connection factory has no property imq.jms.classpath",
        ),
        (
            "/usr",
            "",
            "property imq.jms.classpath of the connection factory is /usr, and the setting imq.jms.classpath is empty",
        ),
    ],
)
@on_reactor
async def test_the_class_path_is_told_where_a_class_is_missing(
    own: str, common: str, told: str
) -> None:
    factory = JMSFactory("x", {"java.naming.factory.initial": "no.such.Factory"}, own)
    with pytest.raises(ClientMissing) as missing:
        await JMSProvider(clock, factory, JavaOptions(common, options=SMALL)).connect(
            GUEST, None, print
        )
    assert "no.such.Factory" in str(missing.value)
    assert str(missing.value).endswith(f"; {told}")
