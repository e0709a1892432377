"""Spark's failures as sentences.

Owns which of the many exceptions around a failure is its cause, and how that reads in one line.
Needs no Spark to be imported: what was raised by Spark knows itself.
"""

from __future__ import annotations

import re
from typing import Any, Final

#: How Spark writes a condition around its text.
_CONDITION: Final = re.compile(r"^\[(?P<name>[A-Z0-9_.]+)\]\s*")
_STATE: Final = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}(?=\W|$)")
_POSITION: Final = re.compile(r"; line \d+ pos \d+;?$")
#: What the client of Spark Connect says where it has no answer.
_REMOTE: Final = re.compile(
    r'RPC that terminated with:.*?details = "(?P<details>[^"\n]*)', re.DOTALL
)
#: What Hadoop says of a kind of storage that it has no class for.
_NO_SCHEME: Final = re.compile('No FileSystem for scheme "(?P<scheme>[^"]*)"')
_NO_CLASS: Final = re.compile(r"Class (?P<name>\S+) not found")
#: Where such a class is: the scheme of its addresses, and the package that has it.
_PACKAGES: Final = {
    "org.apache.hadoop.fs.s3a.": ("s3a", "org.apache.hadoop:hadoop-aws"),
    "org.apache.hadoop.fs.azurebfs.": ("abfss", "org.apache.hadoop:hadoop-azure"),
}
_LENGTH: Final = 500
#: What the operating system says, and Java says of no file.
_FULL: Final = "No space left on device"
#: What stands before what a Python worker has raised.
_TRACEBACK: Final = "Traceback (most recent call last):"
#: The last line of that, from the name of the exception's class on.
_RAISED: Final = re.compile(
    r"^(?P<module>(?:\w+\.)*)(?P<name>\w+)(?:: (?P<text>.*))?$", re.MULTILINE
)


def sentence(error: BaseException) -> str | None:
    """Return one line for the operator about a failure of Spark or its JVM.

    None for any other failure.
    """
    module = type(error).__module__.split(".")[0]
    # The socket says that the server is gone, and not py4j, which has asked it.
    if (module == "py4j" and type(error).__name__ != "Py4JJavaError") or (
        isinstance(error, ConnectionError) and _from_py4j(error)
    ):
        return f"Spark's Java machine ended, or cannot be reached any more; --spark-log FILE keeps what it says ({_line(str(error))})"
    if module not in ("pyspark", "py4j"):
        return None
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    if java is None:
        return _without_storage(str(error)) or _line(str(error))
    try:
        return _cause(java)
    except Exception as gone:  # the machine that has the exception may be gone
        if type(gone).__module__.split(".")[0] not in ("pyspark", "py4j"):
            raise
        return _line(str(getattr(error, "_desc", "") or type(error).__name__))


def _from_py4j(error: BaseException) -> bool:
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    return place is not None and str(place.tb_frame.f_globals.get("__name__", "")).startswith(
        "py4j."
    )


def _cause(java: Any) -> str:
    """The text of the deepest cause that says anything."""
    found = "", ""
    seen = 0
    while java is not None and seen < 30:
        message = java.getMessage()
        if message:
            found = str(java.getClass().getSimpleName()), str(message)
        java = java.getCause()
        seen += 1
    name, message = found
    if not message:
        return "Spark gave no reason; --spark-log FILE keeps what it says"
    if name == "FileNotFoundException":
        return f"a file was removed before it was read: {_line(message)}"
    if name == "OutOfMemoryError":
        return f"Spark's Java machine had too little memory ({_line(message)}): give it more by --memory"
    if _FULL in message and name == "IOException":
        return f"a disk is full ({_line(message)}): the one that is written to, or the one of spark.local.dir, where Spark keeps what does not fit into memory"
    text = _line(message)
    if _TRACEBACK in message:
        return text
    if (lacking := _without_storage(message)) is not None:
        return lacking
    return (
        text if _CONDITION.match(message) or name.endswith("SparkException") else f"{text} ({name})"
    )


def _without_storage(message: str) -> str | None:
    """Say what to install where Spark does not know a kind of storage.

    :returns: None where the message is about something else.
    """
    if (found := _NO_SCHEME.search(message)) is not None:
        name = found["scheme"]
        if name == "s3":
            return "Spark has no storage s3://: expected s3a://, which is the same, and its package hadoop-aws"
        return f"Spark has no storage {name}://: expected one that it knows, or a package with it by --conf spark.jars.packages=GROUP:NAME:VERSION"
    if (found := _NO_CLASS.search(message)) is not None:
        for start, (scheme, package) in _PACKAGES.items():
            if found["name"].startswith(start):
                return f"Spark lacks the package for {scheme}://: expected --conf spark.jars.packages={package}:VERSION, of the version of hadoop-client-api among Spark's jars"
    return None


def _line(message: str) -> str:
    """Return a message's first line without Spark's conditions and states."""
    text = message.strip()
    if (told := _REMOTE.search(text)) is not None:
        return f"the Spark Connect server is gone, or does not answer ({told['details']})"
    if _TRACEBACK in text:
        return _raised(text)
    found = _CONDITION.match(text)
    if found and found["name"] == "USER_RAISED_EXCEPTION":
        # Ours, by raise_error: whole, and one line already.
        return _STATE.sub("", text[found.end() :].split("\n")[0])
    first = _POSITION.sub("", _STATE.sub("", _CONDITION.sub("", text).split("\n")[0].strip()))
    return first if len(first) <= _LENGTH else first[:_LENGTH] + "..."


def _raised(text: str) -> str:
    """Return what a Python worker raised, without what Spark adds.

    The pipeline's own errors are returned without their class.
    """
    found = _RAISED.search(_STATE.sub("", text.rpartition(_TRACEBACK)[2]))
    if found is None:
        return "a Python worker failed; --spark-log FILE keeps what it says"
    said = found["text"] or ""
    if not found["module"].startswith("pipeline.") or not said:
        said = f"{found['name']}: {said}" if said else found["name"]
    return said if len(said) <= _LENGTH else said[:_LENGTH] + "..."
