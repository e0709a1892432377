"""Which class the name of a message transformer means.

``package.module:Class`` and ``package.module.Class`` are looked for in Python; where Python has no
such class, and there is a JMS provider to run it, in Java. ``java:com.acme.Class`` is in Java alone.
Where a class in Python is looked for is for its loader to say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from bridge.config.model import Bridge, ConnectionFactory, Dmq
from bridge.connections.administered import AdministeredFactory, FactoryError
from bridge.connections.connections import Connections
from bridge.connections.factories import Factories
from bridge.dead.java_transformer import JavaDeadTransformer
from bridge.link.java_transformer import JavaTransformer
from gateway.messaging.transformer import MessageTransformer

if TYPE_CHECKING:
    from bridge.providers.jms.provider import JMSProvider
    from bridge.providers.jms.transformer_class import TransformerClass

#: Makes a message transformer from the name of its class; the second argument says where that was
#: given, for errors. May raise anything, whose text is told.
LoadTransformer = Callable[[str, str], MessageTransformer]

_JAVA: Final = "java:"


class NoTransformer(Exception):
    """There is no such class.

    The text names it, where it was named, and where it was looked for.
    """


def dead_transformer(
    name: str,
    where: str,
    dmq: Dmq,
    bridge: Bridge,
    factories: Factories,
    connections: Connections,
    load: LoadTransformer,
    jars: Path | None,
) -> MessageTransformer | JavaDeadTransformer:
    """Return the transformer of a dead message queue.

    A class in Java is run by the queue's own provider, if that is a JMS provider, or else by the
    first of the bridge's JMS providers that has it.

    :param where: the name was given, for errors.
    :param bridge: whose queue it is.
    :param jars: the operator's folder.
    :raises NoTransformer:
    """
    own = () if dmq.built_in or dmq.connection_factory is None else (dmq.connection_factory,)

    def in_java(name: str, where: str) -> JavaDeadTransformer:
        ends = _of_jms(*_usable(factories, (*own, *bridge.connection_factories)))
        found, end = _found(name, where, ends, "no connection factory of the bridge is one", jars)
        return JavaDeadTransformer(found, end, connections)

    if name.startswith(_JAVA):
        return in_java(name.removeprefix(_JAVA), f"{where}={name}")
    try:
        return load(name, where)
    except Exception as error:
        # The loader says what is wrong in words of its own.
        if ":" in name:
            raise NoTransformer(str(error)) from error
        try:
            return in_java(name, "in Java")
        except NoTransformer as also:
            raise NoTransformer(f"{error}; and {also}") from error


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


def _usable(
    factories: Factories, configured: Iterable[ConnectionFactory]
) -> Iterator[AdministeredFactory]:
    for config in dict.fromkeys(configured):
        # A link that needs a factory that cannot work is refused, and says why.
        with suppress(FactoryError):
            yield factories.get(config)


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
    none = "neither source nor target is one"
    found, end = _found(name, where, _of_jms(source, target), none, jars)
    return JavaTransformer(found, end is source)


def _found(
    name: str, where: str, ends: Sequence[AdministeredFactory], none: str, jars: Path | None
) -> tuple[TransformerClass, AdministeredFactory]:
    """Return a class in Java, and the first provider that has it.

    :param none: what to say where there is no JMS provider.
    :raises NoTransformer:
    """
    if not ends:
        raise NoTransformer(
            f"{where}: a class in Java is run by the Java process of a JMS provider, and {none}"
        )
    from bridge.providers.jms.transformer_class import ClassMissing, find

    missing: list[str] = []
    # There is one object for each link and queue.
    key = uuid4().hex
    for end in ends:
        class_path = cast("JMSProvider", end.provider).class_path
        try:
            return find(name, class_path, jars, key), end
        except ClassMissing as error:
            missing.append(str(error))
    raise NoTransformer(f"{where}: {'; '.join(dict.fromkeys(missing))}")
