"""Which class the name of a message transformer means.

``package.module:Class`` and ``package.module.Class`` are looked for in Python; where Python has no
such class, and a JMS provider is at one end of the link, in Java. ``java:com.acme.Class`` is in
Java alone. Where a class in Python is looked for is for its loader to say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from bridge.connections.administered import AdministeredFactory
from bridge.link.java_transformer import JavaTransformer
from gateway.messaging.transformer import MessageTransformer

if TYPE_CHECKING:
    from bridge.providers.jms.provider import JMSProvider

#: Makes a message transformer from the name of its class; the second argument says where that was
#: given, for errors. May raise anything, whose text is told.
LoadTransformer = Callable[[str, str], MessageTransformer]

_JAVA: Final = "java:"
_TARGETS_ONLY: Final = (
    "a class in Java can be the transformer of a link's target, and of no dead message queue"
)


class NoTransformer(Exception):
    """There is no such class.

    The text names it, where it was named, and where it was looked for.
    """


def python_transformer(name: str, where: str, load: LoadTransformer) -> MessageTransformer:
    """Return the transformer of a dead message queue, which must be in Python.

    :param where: the name was given, for errors.
    :raises NoTransformer:
    """
    if name.startswith(_JAVA):
        raise NoTransformer(f"{where}={name}: {_TARGETS_ONLY}")
    try:
        return load(name, where)
    except Exception as error:
        # The loader says what is wrong in words of its own.
        also = "" if ":" in name else f"; {_TARGETS_ONLY}"
        raise NoTransformer(f"{error}{also}") from error


def link_transformer(
    name: str,
    where: str,
    source: AdministeredFactory,
    target: AdministeredFactory,
    load: LoadTransformer,
    jars: Path | None,
) -> MessageTransformer | JavaTransformer:
    """Return the transformer of a link's target.

    :param where: the name was given, for errors.
    :param jars: the operator's folder.
    :raises NoTransformer:
    """
    if name.startswith(_JAVA):
        return _java(name.removeprefix(_JAVA), f"{where}={name}", source, target, jars)
    try:
        return load(name, where)
    except Exception as error:
        # The loader says what is wrong in words of its own.
        if ":" in name or not _of_jms(source, target):
            raise NoTransformer(str(error)) from error
        try:
            return _java(name, "in Java", source, target, jars)
        except NoTransformer as also:
            raise NoTransformer(f"{error}; and {also}") from error


def _of_jms(*ends: AdministeredFactory) -> list[AdministeredFactory]:
    return [end for end in ends if end.kind == "jms"]


def _java(
    name: str,
    where: str,
    source: AdministeredFactory,
    target: AdministeredFactory,
    jars: Path | None,
) -> JavaTransformer:
    """Return a transformer in Java, at the end whose class path has its class.

    The source is asked first: what the transformer gets are then messages of that provider.

    :raises NoTransformer:
    """
    ends = _of_jms(source, target)
    if not ends:
        raise NoTransformer(
            f"{where}: a class in Java is run by the Java process of a JMS provider, and neither source nor target is one"
        )
    from bridge.providers.jms.transformer_class import ClassMissing, find

    missing: list[str] = []
    # There is one object for each link.
    key = uuid4().hex
    for end in ends:
        class_path = cast("JMSProvider", end.provider).class_path
        try:
            return JavaTransformer(find(name, class_path, jars, key), end is source)
        except ClassMissing as error:
            missing.append(str(error))
    raise NoTransformer(f"{where}: {'; '.join(dict.fromkeys(missing))}")
