"""A connection factory in use, with the provider behind it.

JMS's administered object (JMS 1.1, section 2.3).

It connects, with the right credentials and client identifier, and finds the destinations of the
bridge's file. Knows neither which kinds of providers there are
(:mod:`bridge.connections.factories`) nor who has which connection
(:mod:`bridge.connections.connections`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from bridge.config import model
from bridge.config.secrets import secrets_in
from gateway.messaging.destination import Destination
from gateway.messaging.errors import MessagingError, ProviderUnavailable
from gateway.messaging.provider import Connection, ConsumerSpec, Credentials, Provider, Waiting
from gateway.reactor.deferreds import deferred

_log: Final = Logger(namespace="bridge")

#: Finds a destination that has a look-up name.
LookUp = Callable[[model.Destination], Deferred[Destination]]
#: Tells what waits for a subscription, the second argument being the client identifier; None where
#: only a browser can.
Waits = Callable[[ConsumerSpec, str | None], Deferred[Waiting | None]]


class FactoryError(MessagingError):
    """The configuration of a connection factory cannot work.

    Trying again is of no use before it is changed, or before what it names is installed.

    :param ref_name: of the ``connection-factory`` element.
    :param reason: what is wrong, and what was expected; holds no secret.
    :param where: the attribute or property that is wrong, such as ``property 'provider'``; "" for
        the element itself.
    """

    def __init__(self, ref_name: str, reason: str, where: str = "") -> None:
        super().__init__(f"connection-factory '{ref_name}'{where and ', '}{where}: {reason}")
        self.ref_name = ref_name
        self.reason = reason
        self.where = where


class AdministeredFactory:
    """One ``connection-factory`` element with its provider.

    Made by :class:`~bridge.connections.factories.Factories`.

    :param config: the element.
    :param provider: what it connects to.
    :param credentials: who connects.
    :param kind: ``embedded``, ``jms``, ``stomp``, or the name of an installed provider.
    :param client_id: the client identifier that the element configures; None for no identifier, or
        that of the provider's own configuration.
    :param client_id_known: whether there is no other; if not, the provider's own configuration has
        the say, which is known with the first connection.
    :param look_up: finds destinations that have a look-up name; None where there is no such thing.
    :param remembers: whether ``look_up`` remembers what it has found, and fails once that is gone;
        if not, it is asked once for each destination.
    :param find: learns what the provider can do without connecting; None where that is known, or
        shows only then.
    :param waiting: tells what waits without a browser; None where there is no such thing.
    :param class_name: the class of the provider's factory, "" as long as that is not known.
    :param log: the bridge's.
    """

    def __init__(
        self,
        config: model.ConnectionFactory,
        provider: Provider,
        credentials: Credentials,
        kind: str,
        *,
        client_id: str | None = None,
        client_id_known: bool = True,
        look_up: LookUp | None = None,
        remembers: bool = False,
        find: Callable[[], Deferred[None]] | None = None,
        waiting: Waits | None = None,
        class_name: Callable[[], str] = str,
        log: Logger = _log,
    ) -> None:
        self._log = log
        self.config = config
        self.provider = provider
        self.waiting = waiting
        self.kind = kind
        #: The client identifier of connections that ask for none; where it is not
        #: :attr:`client_id_known`, None until it is.
        self.client_id = client_id
        #: Whether :attr:`client_id` is final.
        self.client_id_known = client_id_known
        self.credentials: Final = credentials
        self._look_up = look_up
        self._remembers = remembers
        self._find = find
        self._class_name = class_name
        self._product = ""
        self._found: dict[model.Destination, Destination] = {}

    def __repr__(self) -> str:
        return f"AdministeredFactory({self.config.ref_name!r}, {self.kind!r})"

    @property
    def embedded(self) -> bool:
        """Whether connections are to the broker of this instance."""
        return self.config.embedded

    @property
    def product(self) -> str:
        """What the last connection called itself. Never empty.

        Before the first connection it is the class of the provider's factory, or else its kind.
        """
        return self._product or self._class_name() or self.kind

    def find(self) -> Deferred[None]:
        """Learn what can be known of the provider without connecting.

        A JMS provider's connection factory is looked up.

        :returns: fails as that look-up does.
        """
        return succeed(None) if self._find is None else self._find()

    def connect(
        self, client_id: str | None, lost: Callable[[MessagingError], None]
    ) -> Deferred[Connection]:
        """Make one attempt to connect, as the user that is configured.

        Must not be cancelled, as not every provider would then close what it has opened. Instead,
        close the connection when it comes.

        :param client_id: None is the factory's own one, if it has one.
        :param lost: as in :meth:`gateway.messaging.provider.Provider.connect`.
        :returns: fails as there; whatever else a provider raises becomes ProviderUnavailable.
        """
        return Deferred.fromCoroutine(
            self._connect(client_id or self.client_id, not client_id, lost)
        )

    def connect_without_client_id(
        self, lost: Callable[[MessagingError], None]
    ) -> Deferred[Connection]:
        """As :meth:`connect`, without a client identifier.

        So it takes none from another connection, except where the provider's own configuration has
        one.
        """
        return Deferred.fromCoroutine(self._connect(None, True, lost))

    async def _connect(
        self, client_id: str | None, own: bool, lost: Callable[[MessagingError], None]
    ) -> Connection:
        try:
            connection = await self.provider.connect(self.credentials, client_id, lost)
        except MessagingError:
            raise
        except Exception as error:  # noqa: BLE001
            # A provider of another package may raise anything.
            reason = masked(f"{type(error).__name__}: {error}", self.config)
            self._log.error(
                "connection-factory {ref_name}: its provider failed with {reason}",
                ref_name=self.config.ref_name,
                reason=reason,
            )
            raise ProviderUnavailable(
                f"connection-factory '{self.config.ref_name}': {reason}"
            ) from None
        if own and not self.client_id_known:
            self.client_id = connection.client_id or None
            self.client_id_known = True
        self._product = connection.product
        return connection

    @deferred
    async def destination(self, destination: model.Destination) -> Destination:
        """Return the destination that an element means at this provider.

        The result of a look-up is kept.

        :returns: fails with FactoryError if the provider has no look-up, else as the provider's
            look-up does: with ProviderUnavailable.
        """
        found = destination.by_name or self._found.get(destination)
        if found is not None:
            return found
        ref_name = self.config.ref_name
        if self._look_up is None:
            reason = "its provider looks nothing up: expected a destination with name and type"
            raise FactoryError(
                ref_name, reason, f"lookup-name of destination '{destination.ref_name}'"
            )
        try:
            found = await self._look_up(destination)
        except MessagingError:
            raise
        except Exception as error:  # noqa: BLE001
            reason = masked(f"{type(error).__name__}: {error}", self.config, destination)
            raise ProviderUnavailable(
                f"destination '{destination.ref_name}' of connection-factory '{ref_name}': {reason}"
            ) from None
        if not isinstance(found, Destination):
            raise FactoryError(
                ref_name,
                f"its provider found a {type(found).__name__}: expected a gateway.messaging.destination.Destination",
                f"lookup-name of destination '{destination.ref_name}'",
            )
        if not self._remembers:
            self._found[destination] = found
        return found


def masked(text: str, *elements: model.ConnectionFactory | model.Destination) -> str:
    """Return a provider's text without the secrets of these elements."""
    secrets: set[str] = set()
    for element in elements:
        secrets |= {
            secret
            for name, value in element.properties.items()
            for secret in secrets_in(name, value)
        }
        if isinstance(element, model.ConnectionFactory):
            secrets.add(element.password or "")
    for secret in sorted(secrets - {""}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text
