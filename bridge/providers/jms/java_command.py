"""How a Java process is started: settings, command line and heap.

Owns the settings of Java processes except the class path (:mod:`bridge.config.settings`), the command
line, and how the memory for Java is divided between processes. Starts nothing, and imports nothing
that does.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from bridge.config.settings import JMS_CLASSPATH
from bridge.providers.jms.failures import ClientMissing, JavaMissing
from gateway.instance.memory import host_memory
from gateway.instance.settings import Setting, Settings, Text
from gateway.instance.settings_general import memory_budget
from gateway.messaging.errors import ProviderUnavailable

JVM: Final = Setting(
    "imq.jms.jvm",
    Text(),
    "",
    "The Java that JMS providers run in: path of a java command, of a Java home or of libjvm.so; empty finds one by JAVA_HOME or on the PATH",
)
JVM_OPTIONS: Final = Setting(
    "imq.jms.jvmOptions",
    Text(),
    "",
    "Options of Java processes, separated by blanks, such as -Xmx2g; without -Xmx the heap is sized from the machine, at most 1 GiB for each",
)

#: Every one of them, in the order of the reference.
SETTINGS: Final[tuple[Setting[Any], ...]] = (JVM, JVM_OPTIONS)

_JAR: Final = Path(__file__).parent / "jars" / "stomp-gateway-jms.jar"
_LAUNCH: Final = Path(__file__).parent / "launch.py"
_MAIN: Final = "stompgateway.jms.Main"

MIB: Final = 1 << 20
#: The largest default heap: room for a message of the largest size and several copies.
_LARGEST_HEAP: Final = 1 << 30
#: No client works with less than this.
_SMALLEST_HEAP: Final = 64 * MIB
_HEAP: Final = re.compile(r"-Xmx(\d+)([kKmMgGtT]?)|-XX:MaxHeapSize=(\d+)([kKmMgGtT]?)")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w+GC")
#: Java's default on two processors, G1, needs a quarter more time for a message. It is made for
#: larger heaps; a full collection of a heap of this size takes less than a second.
_SMALL_HEAPS_COLLECTOR: Final = "-XX:+UseSerialGC"
#: System properties that the list of processes must not show. The others are on the command line,
#: as Java reads some of them before our classes run.
_SECRET: Final = re.compile(r"pass|secret|credential|token", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1 << 10, "m": MIB, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True)
class JavaOptions:
    """How Java processes are started.

    Two factories of equal options share a process.

    :param class_path: jars and folders separated by colons, ``FOLDER/*`` for all jars in a folder.
    :param java: a ``java`` command, a Java home, or a path of ``libjvm``; "" is what ``JAVA_HOME``
        or the path has.
    :param options: such as ``-Xmx1g``; system properties with names of secrets are not shown in the
        list of processes.
    :param heaps: bytes that the heaps of all Java processes may take together.
    :param apart: a name; factories with different ones never share a process.
    """

    class_path: str = ""
    java: str = ""
    options: tuple[str, ...] = ()
    heaps: int = 4 * _LARGEST_HEAP
    apart: str = ""

    def of_factory(
        self, class_path: str, options: tuple[str, ...] | None, apart: str
    ) -> JavaOptions:
        """Return these options for one connection factory.

        :param class_path: its own, searched before the common one.
        :param options: in place of the common ones.
        """
        both = ":".join(filter(None, (class_path.strip(), self.class_path.strip())))
        return replace(
            self, class_path=both, options=self.options if options is None else options, apart=apart
        )


def java_options(settings: Settings) -> JavaOptions:
    """The options of Java processes that these settings give."""
    memory = host_memory.memory()
    heaps = host_memory.java_heaps(memory, memory_budget(settings, memory))
    return JavaOptions(
        settings[JMS_CLASSPATH], settings[JVM], tuple(settings[JVM_OPTIONS].split()), heaps
    )


class NoHeapLeft(ProviderUnavailable):
    """Other heaps leave no memory for this one."""


class Command(NamedTuple):
    """A process to start.

    :param arguments: the whole command line, whose executable is a path.
    :param properties: secret ones of the system, told once it runs.
    :param heap: bytes.
    """

    arguments: list[str]
    properties: dict[str, str]
    heap: int


def command(options: JavaOptions, taken: Iterable[int], environment: Mapping[str, str]) -> Command:
    """Return the command for a process.

    :param taken: the heaps of the processes that run, in bytes.
    :param environment: with ``JAVA_HOME`` and ``PATH``.
    :raises JavaMissing: no Java is found.
    :raises ClientMissing: a part of the class path is missing.
    :raises NoHeapLeft: ``taken`` leaves too little.
    """
    java = _executable(options.java, environment)
    class_path = os.pathsep.join((*expanded(options.class_path), str(_JAR)))
    properties: dict[str, str] = {}
    others: list[str] = []
    for option in options.options:
        name, _, value = option[2:].partition("=")
        if option.startswith("-D") and _SECRET.search(name):
            properties[name] = value
        else:
            others.append(option)
    heap = _wanted_heap(others)
    if heap is None:
        heap = _heap(options.heaps, list(taken))
        others.insert(0, f"-Xmx{heap // MIB}m")
    if heap <= _LARGEST_HEAP and not any(map(_COLLECTOR.fullmatch, others)):
        others.insert(0, _SMALL_HEAPS_COLLECTOR)
    launch = [sys.executable, "-I", "-S", str(_LAUNCH), str(os.getpid())]
    # Signals are not Java's to handle.
    arguments = [*launch, java, "-Xrs", *others, "-cp", class_path, _MAIN, str(heap)]
    return Command(arguments, properties, heap)


def expanded(class_path: str) -> tuple[str, ...]:
    """Return the jars and folders of a class path.

    ``FOLDER/*`` is replaced by the jars in that folder, as Java does.

    :raises ClientMissing: one is not there.
    """
    found: list[str] = []
    for entry in class_path.split(os.pathsep):
        entry = entry.strip()
        if not entry:
            continue
        if Path(entry).name == "*":
            folder = Path(entry).parent
            jars = sorted(glob.glob(glob.escape(str(folder)) + "/*.[jJ][aA][rR]"))
            if not jars:
                raise ClientMissing(
                    f"there are no jars in {folder}, which is on the class path as {entry}"
                )
            found += jars
        elif Path(entry).exists():
            found.append(str(Path(entry).absolute()))
        else:
            raise ClientMissing(f"{entry} is on the class path and does not exist")
    return tuple(found)


def _executable(given: str, environment: Mapping[str, str]) -> str:
    if given:
        path = Path(given)
        # Java 8 has libjvm in HOME/jre/lib/ARCHITECTURE/server. Folders further up may hold the
        # command of another Java.
        homes = (
            [path]
            if path.is_dir()
            else list(path.parents)[:5]
            if path.name.startswith("libjvm") and path.is_file()
            else []
        )
        for candidate in [path, *[home / "bin" / "java" for home in homes]]:
            if (
                candidate.is_file()
                and not candidate.name.startswith("libjvm")
                and os.access(candidate, os.X_OK)
            ):
                return str(candidate.absolute())
        raise JavaMissing(
            f"no Java was found at {given} (imq.jms.jvm): expected a java command, a Java home, or a libjvm"
        )
    home = environment.get("JAVA_HOME")
    if home and os.access(Path(home, "bin", "java"), os.X_OK):
        return str(Path(home, "bin", "java"))
    found = shutil.which("java", path=environment.get("PATH"))
    if found is None:
        raise JavaMissing(
            "no java command was found by JAVA_HOME or on the PATH; install a Java runtime, 8 or later, or name one by imq.jms.jvm"
        )
    return found


def _wanted_heap(options: Iterable[str]) -> int | None:
    """The heap that options ask for, in bytes; the last one counts."""
    wanted = None
    for option in options:
        match = _HEAP.fullmatch(option)
        if match:
            digits, unit = (match[1], match[2]) if match[1] else (match[3], match[4])
            wanted = int(digits) * _UNITS[unit.lower()]
    return wanted


def _heap(together: int, taken: list[int]) -> int:
    heap = min(_LARGEST_HEAP, together // 2, together - sum(taken)) // MIB * MIB
    if heap < _SMALLEST_HEAP:
        raise NoHeapLeft(
            f"no memory for a Java process: {len(taken)} of them have heaps of {sum(taken) // MIB} MiB, and all together may have "
            f"{together // MIB} MiB; give them smaller heaps by -Xmx in imq.jms.jvmOptions, or the broker less memory"
        )
    return heap
