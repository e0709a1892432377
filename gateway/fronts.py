"""The brokers behind the STOMP bridge, from their file.

The file names their connection factories. Part of the composition: it joins what bridges know of
other brokers and what serves STOMP clients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

from twisted.logger import Logger

from bridge.config.loading import Misplaced, load_at, located, without_credentials
from bridge.config.model import Bridge, ConnectionFactory
from bridge.config.problems import ConfigurationError
from bridge.config.settings import CONFIG_REMOTE
from bridge.connections.factories import AdministeredFactory, Embedded, Factories, FactoryError
from bridge.providers.jms.java_command import java_options
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.configuration import Configuration, settings_now
from gateway.front.front import FrontConnection, FrontProvider
from gateway.front.held import HeldProvider
from gateway.front.reach import Behind
from gateway.front.routes import Routes, Way
from gateway.front.settings import DESTINATIONS, PROVIDER, XMLURL, FrontFailed, FrontOptions
from gateway.front.shared import SharedProvider
from gateway.instance import settings_general
from gateway.instance.redaction import Redaction, hidden_by_value
from gateway.instance.setting_types import nearest
from gateway.instance.settings import Settings, SettingsError
from gateway.messaging.destination import Destination
from gateway.messaging.provider import Connection, Credentials, Provider

_log: Final = Logger(namespace="gateway.front")


class Front:
    """The brokers behind the STOMP bridge.

    :param embedded: the broker of this instance.
    :param redaction: is told the passwords of the file.
    """

    def __init__(
        self,
        reactor: Any,
        configuration: Configuration,
        embedded: EmbeddedProvider,
        redaction: Redaction,
    ) -> None:
        self._reactor: Final = reactor
        self._configuration: Final = configuration
        self._embedded: Final = embedded
        self._redaction: Final = redaction
        self._routes = Routes(None, {})
        self._shared: list[SharedProvider] = []
        self.provider: Final = FrontProvider(embedded, lambda: self._routes)

    async def open(self) -> None:
        """Read settings and file, and use them for connections from now on.

        :raises FrontFailed: they are wrong. All stays as it was.
        """
        try:
            settings = settings_now(self._configuration)
            options = FrontOptions.read(settings)
            if options is None:
                self._use(Routes(None, {}), [])
                return
            config = await self._load(settings)
            factories = self._factories(settings, config, options.names)
        except (SettingsError, ConfigurationError, FactoryError, OSError) as error:
            raise FrontFailed(str(error)) from error
        shared: list[SharedProvider] = []
        ways = {
            name: self._way(factory, options, shared.append) for name, factory in factories.items()
        }
        main = None if options.main is None else ways[options.main]
        shares = {ways.get(name): theirs for name, theirs in options.shares.items()}
        self._use(Routes(main, shares), shared)

    def _use(self, routes: Routes, shared: list[SharedProvider]) -> None:
        self.close()
        self._routes, self._shared = routes, shared
        for way in routes.ways:
            _log.info("STOMP clients use the broker {name}", name=way.name)

    async def _load(self, settings: Settings) -> Bridge:
        layout, text = self._configuration.layout, settings[XMLURL]
        try:
            location = located(text, layout.etc, remote=settings[CONFIG_REMOTE])
        except Misplaced as refused:
            shown = without_credentials(text)
            raise SettingsError([settings.problem(XMLURL, str(refused), value=shown)]) from None
        config, warnings = await load_at(location, settings_general.STOMP, settings, self._reactor)
        for warning in warnings:
            _log.warn("{warning}", warning=str(warning))
        for what, found in (("link", config.links), ("dmq", config.dmqs)):
            if found:
                _log.warn(
                    "{file}: it has a {what} '{name}', which has no effect here: only connection factories have",
                    file=config.origin,
                    what=what,
                    name=found[0].name,
                )
        names = [*config.usernames(), settings[settings_general.BRIDGE_ADMIN_USER]]
        for secret in hidden_by_value(config.secrets(), names):
            self._redaction.add(secret)
        return config

    def _factories(
        self, settings: Settings, config: Bridge, names: Iterable[str]
    ) -> dict[str, AdministeredFactory]:
        made = Factories(
            self._reactor,
            # No factory of the embedded broker is made, see _element.
            Embedded(self._embedded, Credentials("", "")),
            lambda: java_options(settings),
            log=_log,
        )
        named = {settings[PROVIDER]: PROVIDER.name}
        return {
            name: made.get(_element(config, name, named.get(name) or DESTINATIONS.full_name(name)))
            for name in names
        }

    def _way(
        self,
        factory: AdministeredFactory,
        options: FrontOptions,
        shares: Callable[[SharedProvider], None],
    ) -> Way:
        provider: Provider = factory.provider
        # An ERROR ends a connection to a STOMP broker for all its users, so there each client has
        # its own; it costs no thread.
        if factory.kind == "jms" and options.connections and not options.own_logins:
            shared = provider = SharedProvider(provider, self._reactor, options.connections)
            shares(shared)
        name = factory.config.ref_name
        login = None if options.own_logins else replace(factory.credentials, for_clients=True)
        held = HeldProvider(
            provider, self._reactor, options.hold_s, name, login, factory.kind in ("stomp", "amqp")
        )
        return Way(name, held, login, options.by_key.get(name, frozenset()))

    def own(self, connection: Connection) -> Connection:
        """Return the embedded broker's connection behind a client's."""
        return connection.identity if isinstance(connection, FrontConnection) else connection

    def broker_of(self, destination: Destination) -> Behind | None:
        """Return the broker that has a destination; None for this one."""
        way = self._routes.way(destination)
        return next((each for each in self.behind() if way and each.name == way.name), None)

    def behind(self) -> list[Behind]:
        """Return the brokers, and which of them cannot be reached."""
        main = self._routes.main
        return [Behind(way.name, way is main, way.provider.reach.away) for way in self._routes.ways]

    def close(self) -> None:
        """Close connections that no client has."""
        for way in self._routes.ways:
            way.provider.reach.close()
        for shared in self._shared:
            shared.close()


def _element(config: Bridge, name: str, setting: str) -> ConnectionFactory:
    """Return a connection factory of the file.

    :param setting: which names it.
    :raises FactoryError: it does not exist, or it is not for this.
    """
    found = {factory.ref_name: factory for factory in config.connection_factories}
    element = found.get(name)
    if element is None:
        near = nearest(name, found)
        raise FactoryError(
            name,
            f"{setting} names it, and {config.origin} has no such element; it has {', '.join(found) or 'none'}{f'; was {near} meant?' if near else ''}",
        )
    if element.embedded:
        raise FactoryError(
            name,
            "it is the broker of this instance: expected a lookup-name, or embedded in its place",
        )
    return element
