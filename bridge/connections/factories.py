"""Make the connection factories of a bridge, each with its provider.

A ``connection-factory`` element means, in this order:

*A provider of another package*, if it has a ``property`` named ``provider``. The value is the name
of an entry point in the group ``stomp_gateway.providers``, which is a callable
``(config, reactor) -> Provider``: ``config`` is the element, a
:class:`bridge.config.model.ConnectionFactory` with every attribute and property, ``reactor``
Twisted's; the result is a
:class:`gateway.messaging.provider.Provider`. It is called once for each element, on the reactor
thread, must not block, and raises what is wrong with the element. The provider may besides have a
method ``destination(config)``, which is given a :class:`bridge.config.model.Destination` that has a
``lookup-name`` and returns a Deferred of the :class:`gateway.messaging.destination.Destination`
that it means; it is not called for destinations that have a name. The package declares in its
``setup.cfg``::

    [options.entry_points]
    stomp_gateway.providers =
        kafka = my_package:provider

*The broker of this instance*, if there is no ``lookup-name`` either. Its properties are
``imqConfiguredClientID``, ``imqDefaultUsername`` and ``imqDefaultPassword`` (each ``guest`` where
only the other is given, and both ignored where there is a ``username``). Without any user it
connects as the bridge's own.

*A STOMP broker*, if ``lookup-name`` is ``stomp://HOST:PORT`` or ``stomp+tls://HOST:PORT``. Its
properties are those of
:class:`bridge.providers.stomp.options.StompOptions`, and ``client-id``.

*An AMQP 1.0 broker*, if ``lookup-name`` is ``amqp://HOST:PORT`` or ``amqps://HOST:PORT``, which
needs the extra ``[amqp]``. Its properties are those of
:class:`bridge.providers.amqp.options.AmqpOptions`, and ``client-id``.

*A JMS provider*, if it is anything else: the name of the connection factory in JNDI, whose
environment the properties are, except :data:`JMS_PROPERTIES`.

A kind of provider is imported when the first factory of that kind is made: most installations have
neither Java nor another broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final, TypeVar

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bridge.config import model
from bridge.config.model import PROVIDER_PROPERTY
from bridge.connections.administered import AdministeredFactory, FactoryError, masked
from gateway.instance.setting_types import nearest
from gateway.messaging.destination import Destination
from gateway.messaging.provider import Capabilities, Credentials, Provider

if TYPE_CHECKING:
    from bridge.providers.connection_options import ConnectionOptions, Scheme
    from bridge.providers.jms.java_command import JavaOptions

__all__ = ["GROUP", "AdministeredFactory", "Embedded", "Factories", "FactoryError", "installed"]

T = TypeVar("T")

#: The entry-point group of providers of other packages.
GROUP: Final = "stomp_gateway.providers"

CLIENT_ID: Final = "imqConfiguredClientID"
USERNAME: Final = "imqDefaultUsername"
PASSWORD: Final = "imqDefaultPassword"
_EMBEDDED: Final = (CLIENT_ID, USERNAME, PASSWORD)
#: What Open MQ's factories take for either where it is not given.
_DEFAULT: Final = "guest"

#: The client identifier of a factory for a network protocol.
NETWORK_CLIENT_ID: Final = "client-id"
#: Also misspelled ones: JNDI has no names of such a scheme.
_STOMP: Final = re.compile(r"stomp[a-z+.-]*:", re.IGNORECASE)
_AMQP: Final = re.compile(r"amqp[a-z+.-]*:", re.IGNORECASE)
_NOBODY: Final = Credentials("", "")

#: Properties of a JMS connection factory that are for the bridge and not for JNDI begin so.
JMS_PREFIX: Final = "imq.jms."
_MOST_SECONDS: Final = 86_400
_MOST_MODE: Final = 0x7FFF_FFFF

_log: Final = Logger(namespace="bridge")


def installed() -> dict[str, EntryPoint]:
    """Return the providers of other packages by name.

    If two have the same name, the first on Python's path is returned.
    """
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, point)
    return found


@dataclass(frozen=True, slots=True)
class Embedded:
    """The broker of this instance.

    :param credentials: the bridge's own, ``imq.bridge.admin.user`` and
        ``imq.bridge.admin.password``.
    """

    provider: Provider
    credentials: Credentials


class Factories:
    """The connection factories of one bridge.

    :param reactor: Twisted's.
    :param jvm: how the JVM is started; asked when the first JMS factory is made.
    :param entry_points: the providers of other packages; asked when a factory names one.
    :param log: the bridge's.
    """

    def __init__(
        self,
        reactor: Any,
        embedded: Embedded,
        jvm: Callable[[], JavaOptions],
        entry_points: Callable[[], Mapping[str, EntryPoint]] = installed,
        log: Logger = _log,
    ) -> None:
        self._log = log
        self._reactor = reactor
        self._embedded = embedded
        self._jvm = jvm
        self._entry_points = entry_points
        self._made: dict[str, AdministeredFactory] = {}

    def get(self, config: model.ConnectionFactory) -> AdministeredFactory:
        """Return the factory of this element.

        There is one for each ``ref-name``, and a new one when its element has changed.

        :raises FactoryError: it cannot work.
        """
        made = self._made.get(config.ref_name)
        if made is None or made.config != config:
            made = self._made[config.ref_name] = self._make(config)
        return made

    def _make(self, config: model.ConnectionFactory) -> AdministeredFactory:
        if config.provider is not None:
            return self._other(config, config.provider)
        if config.lookup_name is None:
            return self._of_this_instance(config)
        if _STOMP.match(config.lookup_name):
            return self._stomp(config, config.lookup_name)
        if _AMQP.match(config.lookup_name):
            return self._amqp(config, config.lookup_name)
        return self._jms(config, config.lookup_name)

    def _of_this_instance(self, config: model.ConnectionFactory) -> AdministeredFactory:
        properties = config.properties
        self._warn_of_others(config, _EMBEDDED, properties, "the broker of this instance", "")
        credentials = self._embedded.credentials
        if config.username is not None:
            credentials = _credentials(config)
        elif USERNAME in properties or PASSWORD in properties:
            credentials = Credentials(
                properties.get(USERNAME, _DEFAULT), properties.get(PASSWORD, _DEFAULT)
            )
        client_id = _client_id(config, CLIENT_ID)
        provider = self._embedded.provider
        return AdministeredFactory(
            config,
            provider,
            credentials,
            "embedded",
            client_id=client_id,
            waiting=getattr(provider, "waiting", None),
            log=self._log,
        )

    def _stomp(self, config: model.ConnectionFactory, lookup_name: str) -> AdministeredFactory:
        from bridge.providers.stomp.options import SCHEME, TLS, StompAddress, StompOptions
        from bridge.providers.stomp.provider import StompProvider

        address = _address(config, SCHEME, StompAddress.parse, lookup_name)
        options = _options(config, StompOptions.from_properties)
        self._warn_of_unused(config, options, TLS, address.tls)
        provider = StompProvider(address, options, self._reactor)
        return self._of_network(config, provider, "stomp")

    def _amqp(self, config: model.ConnectionFactory, lookup_name: str) -> AdministeredFactory:
        from bridge.providers.amqp.options import SCHEME, TLS, AmqpAddress, AmqpOptions

        address = _address(config, SCHEME, AmqpAddress.parse, lookup_name)
        options = _options(config, AmqpOptions.from_properties)
        self._warn_of_unused(config, options, TLS, address.tls)
        try:
            from bridge.providers.amqp.provider import AmqpProvider
        except ImportError as error:
            reason = f"the package python-qpid-proton, which the extra [amqp] brings, cannot be imported ({error}): pip install stomp-gateway[amqp]"
            raise FactoryError(config.ref_name, reason, "lookup-name") from None
        provider = AmqpProvider(address, options, self._reactor)
        return self._of_network(config, provider, "amqp")

    def _of_network(
        self, config: model.ConnectionFactory, provider: Provider, kind: str
    ) -> AdministeredFactory:
        return AdministeredFactory(
            config,
            provider,
            _credentials(config),
            kind,
            client_id=_client_id(config, NETWORK_CLIENT_ID),
            log=self._log,
        )

    def _jms(self, config: model.ConnectionFactory, lookup_name: str) -> AdministeredFactory:
        from bridge.providers.jms.connection import JMSFactory
        from bridge.providers.jms.provider import JMSProvider

        environment, fields = _jms_properties(config)
        provider = JMSProvider(
            self._reactor,
            JMSFactory(lookup_name, environment, **fields),
            self._jvm(),
            config.ref_name,
        )

        def look_up(destination: model.Destination) -> Deferred[Destination]:
            return provider.look_up(destination.lookup_name or "", destination.properties)

        return AdministeredFactory(
            config,
            provider,
            _credentials(config),
            "jms",
            client_id_known=False,
            look_up=look_up,
            remembers=True,
            find=provider.look_up_factory,
            class_name=lambda: provider.class_name,
            log=self._log,
        )

    def _other(self, config: model.ConnectionFactory, name: str) -> AdministeredFactory:
        where = f"property '{PROVIDER_PROPERTY}'"
        points = self._entry_points()
        point = points.get(name)
        if point is None:
            reason = f"no provider '{name}' is installed in entry-point group {GROUP}; {_listed(points)}{_meant(name, points)}"
            raise FactoryError(config.ref_name, reason, where)
        try:
            make = point.load()
            provider: Any = make(config, self._reactor)
            missing = _missing(provider)
        except Exception as error:  # noqa: BLE001
            # It is another package's, which may raise anything.
            reason = masked(f"{type(error).__name__}: {error}", config)
            text = f"provider '{name}' ({point.value}) failed with {reason}; {_listed(points)}"
            raise FactoryError(config.ref_name, text, where) from None
        if missing:
            text = f"provider '{name}' ({point.value}) returned {_class_name(provider)}, which has no {missing}: expected a gateway.messaging.provider.Provider; {_listed(points)}"
            raise FactoryError(config.ref_name, text, where)
        return AdministeredFactory(
            config,
            provider,
            _credentials(config),
            name,
            client_id_known=False,
            look_up=getattr(provider, "destination", None),
            waiting=getattr(provider, "waiting", None),
            class_name=lambda: _class_name(provider),
            log=self._log,
        )

    def _warn_of_unused(
        self, config: model.ConnectionFactory, options: ConnectionOptions, scheme: str, tls: bool
    ) -> None:
        """Log properties of a network protocol's factory that have no effect.

        :param scheme: the one of addresses with TLS.
        :param tls: the factory's address has it.
        """
        prefix, protocol = options.PREFIX, options.PROTOCOL
        article = "an" if protocol.startswith("A") else "a"
        self._warn_of_others(
            config,
            (NETWORK_CLIENT_ID,),
            [name for name in config.properties if not name.startswith(prefix)],
            f"{article} {protocol} broker",
            f" and those that begin with {prefix}",
        )
        if not tls and (options.ca is not None or options.certificate is not None):
            self._log.warn(
                "connection-factory {ref_name}: it has a certificate and connects without TLS; for TLS its lookup-name begins with {scheme}://",
                ref_name=config.ref_name,
                scheme=scheme,
            )

    def _warn_of_others(
        self,
        config: model.ConnectionFactory,
        known: tuple[str, ...],
        given: Iterable[str],
        whose: str,
        also: str,
    ) -> None:
        for name in given:
            if name not in known:
                self._log.warn(
                    "connection-factory {ref_name}: property '{name}' means nothing to {whose}, which knows {known}{meant}",
                    ref_name=config.ref_name,
                    name=name,
                    whose=whose,
                    known=", ".join(known) + also,
                    meant=_meant(name, known),
                )


def _meant(name: str, known: Iterable[str]) -> str:
    near = nearest(name, known)
    return f"; was {near} meant?" if near else ""


def _missing(provider: Any) -> str:
    """Return what it lacks to be a provider; empty if nothing."""
    if not callable(getattr(provider, "connect", None)):
        return "method 'connect'"
    if not isinstance(getattr(provider, "capabilities", None), Capabilities):
        return "Capabilities in 'capabilities'"
    return "" if isinstance(getattr(provider, "resource", None), str) else "text in 'resource'"


def _class_name(provider: object) -> str:
    return f"{type(provider).__module__}.{type(provider).__qualname__}"


def _listed(points: Iterable[str]) -> str:
    return f"installed: {', '.join(sorted(points)) or 'none'}"


def _address(
    config: model.ConnectionFactory, scheme: Scheme, parse: Callable[[str], T], text: str
) -> T:
    from bridge.providers.connection_options import InvalidAddress

    try:
        return parse(text)
    except InvalidAddress as error:
        # Without the text, in which there may be a passcode.
        reason = f"{error.reason}; expected {scheme.expected}"
        raise FactoryError(config.ref_name, reason, "lookup-name") from None


def _options(config: model.ConnectionFactory, read: Callable[[Mapping[str, str]], T]) -> T:
    from bridge.providers.connection_options import InvalidOption

    try:
        return read(config.properties)
    except InvalidOption as error:
        raise FactoryError(config.ref_name, error.reason, f"property '{error.name}'") from None


def _credentials(config: model.ConnectionFactory) -> Credentials:
    return (
        _NOBODY if config.username is None else Credentials(config.username, config.password or "")
    )


def _client_id(config: model.ConnectionFactory, name: str) -> str | None:
    value = config.properties.get(name)
    if value is not None and not value.strip():
        raise FactoryError(
            config.ref_name,
            "expected a client identifier; leave the property out for none",
            f"property '{name}'",
        )
    return value


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise ValueError(
            f"'{value[:40]}' is no number of seconds above 0 and up to {_MOST_SECONDS}"
        )
    return seconds


def _mode(value: str) -> int:
    text = value.strip()
    # Not more digits, as reading them takes time.
    digits = text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_MODE))
    if not digits or int(text) > _MOST_MODE:
        raise ValueError(
            f"'{value[:40]}' is no acknowledge mode: expected a number from 0 to {_MOST_MODE}"
        )
    return int(text)


#: The field of :class:`~bridge.providers.jms.connection.JMSFactory` that each property gives, and how
#: its value is read.
_JMS_FIELDS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    # Jars and folders of the provider's client, before those of the setting of the same name.
    "imq.jms.classpath": ("class_path", str),
    # Options of its Java process, in place of those of the setting of the same name.
    "imq.jms.jvmOptions": ("java_options", lambda value: tuple(value.split())),
    # A name for its Java process, which it then shares only with factories of the same name.
    "imq.jms.process": ("process", str.strip),
    # Seconds that calls of the provider's client may take.
    "imq.jms.lookupTimeout": ("lookup_timeout_s", _seconds),
    "imq.jms.connectTimeout": ("connect_timeout_s", _seconds),
    "imq.jms.sendTimeout": ("send_timeout_s", _seconds),
    "imq.jms.closeTimeout": ("close_timeout_s", _seconds),
    # The provider's own acknowledge mode for acknowledgement one by one.
    "imq.jms.individualAcknowledge": ("individual_acknowledge", _mode),
    # The queue to which the provider's dead messages go; empty for no queue.
    "imq.jms.deadQueue": ("dead_queue", str.strip),
}
#: The properties of a JMS connection factory that are for the bridge. All others are JNDI's
#: environment, and are passed on unread.
JMS_PROPERTIES: Final = tuple(_JMS_FIELDS)


def _jms_properties(config: model.ConnectionFactory) -> tuple[dict[str, str], dict[str, Any]]:
    """Separate the properties of a JMS connection factory.

    :returns: JNDI's environment, and the fields of JMSFactory that are given.
    :raises FactoryError: one with our prefix that does not exist, or has a value out of range.
    """
    environment: dict[str, str] = {}
    fields: dict[str, Any] = {}
    for name, value in config.properties.items():
        if not name.startswith(JMS_PREFIX):
            environment[name] = value
            continue
        where = f"property '{name}'"
        if name not in _JMS_FIELDS:
            reason = f"there is no such property, but {', '.join(JMS_PROPERTIES)}{_meant(name, JMS_PROPERTIES)}"
            raise FactoryError(config.ref_name, reason, where)
        field, read = _JMS_FIELDS[name]
        try:
            fields[field] = read(value)
        except ValueError as refused:
            raise FactoryError(config.ref_name, str(refused), where) from None
    return environment, fields
