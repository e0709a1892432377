"""The parts of a running JMS bridge, made from its configuration.

They are connection factories, connections, dead message queues and links.

Owns their making, and their exchange when the configuration becomes another. When they are started
and stopped is :mod:`bridge.jms_bridge`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from bridge.config import model
from bridge.connections.administered import AdministeredFactory
from bridge.connections.connections import Connections
from bridge.connections.factories import Embedded, Factories, FactoryError
from bridge.dead.chain import DeadMessage, DeadMessageQueues, DmqStatus
from bridge.jms_link import JMSLink
from bridge.link.balances import Balances
from bridge.link.delivery.background_recovery import BackgroundRecovery
from bridge.link.java_transformer import JavaTransformer
from bridge.link.journal import BridgeLines
from bridge.refused_link import RefusedLink
from bridge.transformers import (
    LoadTransformer,
    NoTransformer,
    dead_transformer,
    link_transformer,
)
from gateway.instance import settings_general as general
from gateway.instance.settings import Settings, SettingsError, Severity
from gateway.messaging.provider import Credentials
from gateway.messaging.transformer import MessageTransformer
from gateway.reactor.clocks import wall_ms
from gateway.reactor.deferreds import deferred

if TYPE_CHECKING:
    from bridge.providers.jms.java_command import JavaOptions


class DeadMessages:
    """The dead message queues in force.

    Links keep this object while the queues behind it are exchanged.
    """

    def __init__(self, queues: DeadMessageQueues) -> None:
        self._queues = queues
        self._replaced: list[DeadMessageQueues] = []

    async def bury(self, dead: DeadMessage) -> None:
        """As :meth:`~bridge.dead.chain.DeadMessageQueues.bury`."""
        await self._queues.bury(dead)

    def status(self) -> Sequence[DmqStatus]:
        return self._queues.status()

    def replace(self, queues: DeadMessageQueues) -> None:
        """Give the next dead message to these queues.

        :meth:`stop_replaced` stops those before.
        """
        self._replaced.append(self._queues)
        self._queues = queues

    def start(self) -> Deferred[None]:
        return Deferred.fromCoroutine(self._queues.start())

    def stop(self) -> Deferred[None]:
        self._replaced.append(self._queues)
        return self.stop_replaced()

    @deferred
    async def stop_replaced(self) -> None:
        replaced, self._replaced = self._replaced, []
        for queues in replaced:
            await queues.stop()


class Parts:
    """The parts of one bridge; nothing of it is started.

    :param embedded: the broker of this instance.
    :param jvm: how the JVM is started, asked when it is needed first.
    :param coordination: of the bridge's transactions.
    :param instance: tells this instance from all others, for the loop guard.
    :param lines: tell the journal.
    :param stalled_s: as :class:`~bridge.jms_link.JMSLink` has it, and
    :param balances: likewise.
    :param jars: the operator's folder with jars of message transformers.
    :raises: what a dead message queue cannot be made for.
    """

    def __init__(
        self,
        reactor: Any,
        config: model.Bridge,
        embedded: Embedded,
        jvm: Callable[[], JavaOptions],
        load_transformer: LoadTransformer,
        coordination: BackgroundRecovery,
        instance: str,
        log: Logger,
        lines: BridgeLines,
        stalled_s: float = 0,
        balances: Balances | None = None,
        jars: Path | None = None,
    ) -> None:
        self._jars: Final = jars
        self._balances: Final = balances
        self._stalled_s: Final = stalled_s
        self.config = config
        self._reactor: Final = reactor
        self._load_transformer: Final = load_transformer
        self.coordination: Final = coordination
        self._instance: Final = instance
        self._log: Final = log
        self._lines: Final = lines
        self.factories: Final = Factories(reactor, embedded, jvm, log=log)
        self.connections: Final = Connections(reactor, log)
        self.dead_messages: Final = DeadMessages(self._queues(config))
        self.links = {link.name: self._link(link, config) for link in config.links}
        #: The names of links that are to be started when the bridge is resumed.
        self.held: set[str] = set()
        self._prepared: DeadMessageQueues | None = None

    def prepare_dead_messages(self, config: model.Bridge) -> None:
        """Make another configuration's dead message queues for :meth:`replace`.

        Raises what prevents making them.
        """
        self._prepared = self._queues(config)

    def replace(
        self, config: model.Bridge, anew: Container[str], connection_factories: Iterable[str]
    ) -> list[JMSLink | RefusedLink]:
        """Put another configuration in force.

        :param anew: the names of links to be made anew; those that are there by these names, or are
            in ``config`` no more, have been stopped.
        :param connection_factories: whose connections are not to be used any more.
        :returns: the links made.
        """
        for ref_name in connection_factories:
            self.connections.invalidate(ref_name)
        if self._prepared is not None:
            self.dead_messages.replace(self._prepared)
            self._prepared = None
        self.config = config
        self.coordination.configure(self.resource_managers())
        before, self.links = self.links, {}
        fresh = []
        for link in config.links:
            if link.name in anew:
                self.links[link.name] = self._link(link, config)
                fresh.append(self.links[link.name])
            else:
                self.links[link.name] = before[link.name]
                before[link.name].configure(config)
        return fresh

    def resource_managers(self) -> Sequence[AdministeredFactory]:
        """Return the file's connection factories that may have resource managers."""
        made = []
        for config in self.config.connection_factories:
            try:
                made.append(self.factories.get(config))
            except FactoryError as error:
                # A link that needs it is refused for the same reason.
                self._log.debug("{error}", error=error)
        return made

    def _queues(self, config: model.Bridge) -> DeadMessageQueues:
        return DeadMessageQueues(
            self._reactor,
            config,
            self.factories,
            self.connections,
            partial(
                dead_transformer,
                bridge=config,
                factories=self.factories,
                connections=self.connections,
                load=self._load_transformer,
                jars=self._jars,
            ),
            self._log,
        )

    def _link(self, link: model.Link, config: model.Bridge) -> JMSLink | RefusedLink:
        reason = (
            "" if link.enabled else 'it is disabled: set enabled="true" in the file of the bridge'
        )
        if not reason:
            try:
                source = self.factories.get(link.source.connection_factory)
                target = self.factories.get(link.target.connection_factory)
                return JMSLink(
                    self._reactor,
                    link,
                    config,
                    source,
                    target,
                    self.connections,
                    self.coordination,
                    self.dead_messages,
                    self._transformer(link, source, target),
                    self._instance,
                    self._log,
                    self._lines,
                    self._stalled_s,
                    self._balances,
                )
            except FactoryError as error:
                reason = f"link {link.name} cannot connect: {error}"
            except NoTransformer as error:
                reason = f"link {link.name} cannot have its message transformer: {error}"
        return RefusedLink(link, config.name, reason, lambda: wall_ms(self._reactor))

    def _transformer(
        self, link: model.Link, source: AdministeredFactory, target: AdministeredFactory
    ) -> MessageTransformer | JavaTransformer | None:
        """Return the transformer of a link; None for none. :raises NoTransformer:"""
        name = link.target.message_transformer_class
        if name is None:
            return None
        where = f"message-transformer-class of the target of link {link.name}"
        return link_transformer(name, where, source, target, self._load_transformer, self._jars)


def refusal_of(link: JMSLink | RefusedLink) -> str:
    """Return why a link cannot be started; "" if it can or is disabled."""
    return link.reason if isinstance(link, RefusedLink) and link.config.enabled else ""


def credentials_of(settings: Settings, name: str) -> Credentials:
    """Return the bridge's user at the broker of this instance.

    :raises SettingsError: it is not configured.
    """
    expected = {
        general.BRIDGE_ADMIN_USER: f"the user as whom bridge {name} uses the broker of this instance",
        general.BRIDGE_ADMIN_PASSWORD: f"the password with which bridge {name} uses the broker of this instance",
    }
    missing = [setting for setting in expected if not settings[setting]]
    if missing:
        raise SettingsError(
            [
                settings.problem(setting, expected[setting], severity=Severity.BRIDGE)
                for setting in missing
            ]
        )
    return Credentials(settings[general.BRIDGE_ADMIN_USER], settings[general.BRIDGE_ADMIN_PASSWORD])
