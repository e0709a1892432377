"""The process's one JVM: when it starts, with what, and what is said where something of it is missing.

JNI allows one JVM for each process, and none after it has ended, so it is started when the first connection factory is looked up, and never
again. ``-Xrs`` keeps its hands off signals. Providers do not share a class path: each has a class loader (``Directory.java``).

Owns the start and the class paths. Knows nothing of JMS. JPype is imported here and nowhere at import time: most installations have no Java.
"""

from __future__ import annotations

import atexit
import glob
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bridge.providers.jms.failures import ClientMissing, JPypeMissing, Kind

_JARS: Final = Path(__file__).parent / "jars"
_COMMON: Final = _JARS / "stomp-gateway-jms.jar"
_NAMESPACES: Final = _JARS / "stomp-gateway-jms-namespaces.jar"


class JavaFailure(Exception):
    """A call into Java has failed. :param kind: see :class:`~bridge.providers.jms.failures.Kind`. :param reason: in words."""

    def __init__(self, kind: int, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class JVMOptions:
    """How the JVM is started, by whoever needs it first.

    :param class_path: of ``imq.jms.classpath``: what every provider's class path ends with.
    :param library: path of libjvm; "" finds it.
    :param options: such as ``-Xmx256m``.
    """

    class_path: str = ""
    library: str = ""
    options: tuple[str, ...] = ("-Xmx256m",)


_lock: Final = threading.Lock()
#: Set once a JVM runs: before, no thread of ours has called Java.
_started: Final = threading.Event()
_directories: Final[dict[tuple[str, ...], Any]] = {}


def expanded(class_path: str) -> tuple[str, ...]:
    """The jars and folders of a class path, ``FOLDER/*`` replaced by the jars in that folder, as Java does.

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
                raise ClientMissing(f"there are no jars in {folder}, which is on the class path as {entry}")
            found += jars
        elif Path(entry).exists():
            found.append(str(Path(entry).absolute()))
        else:
            raise ClientMissing(f"{entry} is on the class path and does not exist")
    return tuple(found)


def directory(class_path: str, options: JVMOptions) -> Any:
    """The class path's ``Directory``; the JVM is started if need be. Blocks: for threads that may.

    :raises ClientMissing: JPype, of which its JPypeMissing tells, the JVM, or a part of the class path is missing.
    """
    entries = (*expanded(class_path), *expanded(options.class_path), str(_NAMESPACES))
    with _lock:
        _start(options)
        known = _directories.get(entries)
        if known is None:
            import jpype

            known = _directories[entries] = called(lambda: jpype.JClass("stompgateway.jms.Directory")(list(entries)))
        return known


def _start(options: JVMOptions) -> None:
    try:
        import jpype
        import jpype.config
    except ImportError as error:
        raise JPypeMissing("JPype1 is not installed, which JMS providers need: pip install 'stomp-gateway[jms]'") from error
    if jpype.isJVMStarted():
        _started.set()
        return
    # At the end of the process the JVM ends with it. Waiting for its threads would wait for calls that hang, too.
    jpype.config.onexit = False
    if options.library and not Path(options.library).is_file():
        raise ClientMissing(f"no Java virtual machine was found at {options.library} (imq.jms.jvm)")
    try:
        jpype.startJVM(options.library or None, "-Xrs", *options.options, classpath=[str(_COMMON)], convertStrings=True)
    except (jpype.JVMNotFoundException, FileNotFoundError) as error:
        raise ClientMissing(
            f"no Java virtual machine was found by JAVA_HOME or the java command; install a Java runtime, 8 or later: {error}"
        ) from error
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise ClientMissing(f"the Java virtual machine does not start with options {' '.join(options.options)}: {error}") from error
    _started.set()


def called(function: Callable[[], Any]) -> Any:
    """Make a call into Java. :raises JavaFailure: it threw."""
    import jpype

    try:
        return function()
    except jpype.JException as error:
        kind = getattr(error, "kind", None)
        if kind is not None:
            raise JavaFailure(int(kind()), str(error.getMessage())) from None
        missing = isinstance(error, jpype.JClass("java.lang.LinkageError"))
        told = str(jpype.JClass("stompgateway.jms.Failure").told(error))
        raise JavaFailure(Kind.MISSING if missing else Kind.OTHER, told) from None


def pairs(environment: Sequence[tuple[str, str]]) -> list[str]:
    """Names and values in turn."""
    return [text for pair in environment for text in pair]


def detach() -> None:
    """This thread calls Java no more; Java forgets it. Nothing where no JVM was started, be it that JPype is not installed."""
    if not _started.is_set():
        return
    import jpype

    if jpype.isJVMStarted():
        jpype.JClass("java.lang.Thread").detach()


# Registered before that of bridge.providers.jms.threads, so it is done after that: buffers in use are not to be given back.
@atexit.register
def _end() -> None:
    """The process ends: once this has returned no thread of Java calls Python any more.

    One that did while the interpreter is being taken down would abort the process: a provider's that tells of a loss, and JPype's own, which
    gives back what Java has done with.
    """
    jpype = sys.modules.get("jpype")
    if jpype is not None and jpype.isJVMStarted():
        jpype.JClass("stompgateway.jms.Ending").begin()
        jpype.JClass("org.jpype.ref.JPypeReferenceQueue").getInstance().stop()


def buffer(octets: bytes | bytearray) -> Any:
    """These octets as a direct ByteBuffer, without copying; valid as long as they are."""
    import jpype.nio

    return jpype.nio.convertToDirectBuffer(octets if isinstance(octets, bytearray) else bytearray(octets))


def octets_of(array: Any) -> bytes:
    """The octets of a Java ``byte[]``."""
    return memoryview(array).tobytes()
