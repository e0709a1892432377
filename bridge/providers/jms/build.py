"""Build the Java classes that are shipped with their source:
``python -m bridge.providers.jms.build``, where a JDK is installed.

The classes that use the JMS API are written once, for ``javax.jms``, and compiled twice, the second
time with ``jakarta.jms`` in its place. So the compiler checks both, calls cost no more than usual,
and exceptions keep their types, which reflection would not give. ``jms-api.java`` declares the API
as far as it is used, so a build needs nothing but a JDK.

The class that message transformers extend has the name that Open MQ gave it, in both packages that
it has had there, and one name cannot be two classes of a jar: so it lies in a folder of its
namespace, from which ``Transformers.java`` loads it.

Owns how sources become one jar, which follows the provider's own jars on the class path of its Java
process. Knows nothing of what the classes do.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parent / "java"
JARS: Final = Path(__file__).parent / "jars"
JAR: Final = "stomp-gateway-jms.jar"

#: The oldest Java whose JVM can run the classes.
RELEASE: Final = "8"
_PACKAGE: Final = "stompgateway/jms"
_TRANSFORMER: Final = "com/sun/messaging/bridge/api/MessageTransformer.java"
_NAMESPACES: Final = ("javax", "jakarta")
_MADE_OF: Final = "META-INF/made-of"
_DECLARATION: Final = re.compile(r"^public (?:interface|class) (\w+)", re.MULTILINE)


class BuildFailed(Exception):
    """No JDK, or the compiler refuses the sources; the text says which."""


def other_namespace(source: str) -> str:
    """Return a source for ``javax.jms`` as a source for ``jakarta.jms``."""
    return source.replace("javax.jms", "jakarta.jms").replace(
        "stompgateway.jms.javax", "stompgateway.jms.jakarta"
    )


def write_api(folder: Path, namespace: str) -> None:
    """Write the declarations of the API as Java sources.

    :param namespace: ``javax`` or ``jakarta``.
    """
    text = (SOURCES / "jms-api.java").read_text(encoding="utf-8")
    starts = [match.start() for match in _DECLARATION.finditer(text)]
    target = folder / namespace / "jms"
    target.mkdir(parents=True)
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        declaration = text[start:end]
        name = _DECLARATION.match(declaration)[1]  # type: ignore[index]
        (target / f"{name}.java").write_text(
            f"package {namespace}.jms;\n\n{declaration}", encoding="utf-8"
        )


def write_transformer(folder: Path, namespace: str) -> None:
    """Write the class that message transformers extend as Java sources.

    :param namespace: ``javax`` or ``jakarta``.
    """
    text = (SOURCES / _TRANSFORMER).read_text(encoding="utf-8")
    if namespace != "javax":
        text = other_namespace(text)
    # The package has been renamed since the guide was written.
    for package in ("api", "service"):
        _write(
            folder / _TRANSFORMER.replace("/api/", f"/{package}/"),
            text.replace("messaging.bridge.api", f"messaging.bridge.{package}"),
        )


def _javac() -> str:
    javac = shutil.which("javac")
    if javac is None:
        raise BuildFailed(
            "there is no javac on the PATH; a JDK is needed to build the Java classes"
        )
    return javac


def compile_sources(sources: Path, classes: Path, *class_path: Path) -> None:
    """Compile every source below a folder. :raises BuildFailed:"""
    javac = _javac()
    files = sorted(map(str, sources.rglob("*.java")))
    path = ":".join(map(str, class_path)) or "."
    options = [
        "-nowarn",
        "-Xlint:-options",
        "--release",
        RELEASE,
        "-g:lines,source",
        "-encoding",
        "UTF-8",
        "-proc:none",
        "-implicit:none",
    ]
    done = subprocess.run(
        [javac, *options, "-cp", path, "-d", str(classes), *files],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if done.returncode:
        raise BuildFailed(f"{javac} exited with {done.returncode}:\n{done.stdout}{done.stderr}")


def sources() -> dict[str, str]:
    """The sources by their path below the folder of sources.

    Their line ends are those of the repository.
    """
    return {
        path.relative_to(SOURCES).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(SOURCES.rglob("*.java"))
    }


def digest() -> str:
    """The SHA-256 of all sources."""
    total = hashlib.sha256()
    for name, text in sources().items():
        octets = text.encode()
        total.update(f"{name} {len(octets)}\n".encode() + octets)
    return total.hexdigest()


def compiler() -> str:
    """The version of the compiler on the PATH, such as ``javac 17``.

    :raises BuildFailed: no javac is on the PATH.
    """
    told = subprocess.run(
        [_javac(), "-version"], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    )
    return " ".join((told.stdout + told.stderr).split()[:2]).partition(".")[0]


def made_of(jar: Path) -> tuple[str, str]:
    """Return the digest of the sources of a jar, and its compiler."""
    with zipfile.ZipFile(jar) as archive:
        made, by = archive.read(_MADE_OF).decode().splitlines()
    return made, by


def build(folder: Path) -> Path:
    """Make the jar in this folder.

    The same sources and compiler give the same bytes. :raises BuildFailed:
    """
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        common, api, namespaces = work / "common", work / "api", work / "namespaces"
        for path, text in sources().items():
            if path.startswith(f"{_PACKAGE}/javax/"):
                _write(namespaces / path, text)
                _write(namespaces / path.replace("/javax/", "/jakarta/"), other_namespace(text))
            elif path.startswith(f"{_PACKAGE}/"):
                _write(common / path, text)
        for namespace in _NAMESPACES:
            write_api(api, namespace)
        classes, api_classes = work / "classes", work / "api-classes"
        # Separately, so that nothing in the first can use the API.
        compile_sources(common, classes)
        compile_sources(api, api_classes)
        compile_sources(namespaces, classes, classes, api_classes)
        for namespace in _NAMESPACES:
            write_transformer(work / namespace, namespace)
            place = classes / _PACKAGE / namespace
            compile_sources(work / namespace, place, classes, api_classes)
        folder.mkdir(parents=True, exist_ok=True)
        entries = {
            "META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n",
            _MADE_OF: f"{digest()}\n{compiler()}\n".encode(),
        }
        for file in sorted(classes.rglob("*.class")):
            entries[file.relative_to(classes).as_posix()] = file.read_bytes()
        with zipfile.ZipFile(folder / JAR, "w", zipfile.ZIP_DEFLATED) as archive:
            for entry, octets in entries.items():
                # A date of its own would make every build differ.
                archive.writestr(
                    zipfile.ZipInfo(entry, (1980, 1, 1, 0, 0, 0)), octets, zipfile.ZIP_DEFLATED
                )
        return folder / JAR


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Build the jar that is shipped."""
    try:
        print(build(JARS))
    except BuildFailed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
