"""The admin service of an instance, made from its parts.

Part of the composition: it joins the service, which knows no users, with the users, the bridges and
the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Any, Final

from twisted.logger import Logger

from bridge.manager import BridgeServiceManager
from certs.contexts import ServerContextFactory
from gateway.admin.console.assembly import console
from gateway.admin.management.answering import MessageManagement
from gateway.admin.service.account_resources import AccountResources
from gateway.admin.service.bridge_resources import (
    COUNTED,
    BridgeOwnership,
    BridgeResources,
    as_jms,
    transactions_of,
)
from gateway.admin.service.broker_resources import BrokerResources
from gateway.admin.service.dead import DeadMessages
from gateway.admin.service.definition_resources import DefinitionResources
from gateway.admin.service.doctor_resources import Configured, DoctorResources, Served
from gateway.admin.service.event_resources import EventResources
from gateway.admin.service.guard import Authenticate
from gateway.admin.service.listener_resources import ListenerResources
from gateway.admin.service.message_resources import DeadMessageResources, QueueMessages
from gateway.admin.service.metrics import (
    MetricsResource,
    behind_metrics,
    bridge_metrics,
    certificate_metrics,
    destination_metrics,
    journal_metrics,
    memory_metrics,
    stomp_metrics,
    tracing_metrics,
    transaction_metrics,
)
from gateway.admin.service.order_resources import MessageOrders
from gateway.admin.service.ownership_resources import Ownership, OwnershipResources
from gateway.admin.service.roles import Identity, Role
from gateway.admin.service.search_resources import SearchResources
from gateway.admin.service.service import AdminService
from gateway.admin.service.settings import (
    METRICS_DESTINATIONS,
    OPERATORS,
    TLS_ENABLED,
    VIEWERS,
    AdminOptions,
)
from gateway.admin.service.subscription_resources import SubscriptionResources
from gateway.admin.service.trace_resources import TraceResources
from gateway.admin.service.why_resources import StandbyWhyResources, WhyResources
from gateway.admin.why.explain import Explanations, Sources
from gateway.bridge_definitions import BridgeDefinitions
from gateway.bridges import BridgeLoader, StompBridge
from gateway.broker.operator.accounts import Accounts
from gateway.broker.operator.administration import BrokerAdministration
from gateway.broker.operator.paging import Paging
from gateway.broker.operator.searching import MessageSearch
from gateway.broker.operator.xa_administration import BranchAdministration
from gateway.broker.properties import settings as broker_settings
from gateway.broker.security.access import AccessRules
from gateway.broker.security.repositories import Repositories
from gateway.broker.security.users import ELSEWHERE, Principal
from gateway.broker.sessions.provider import EmbeddedProvider
from gateway.configuration import Configuration, reread, settings_now
from gateway.front.reach import Behind
from gateway.instance.events import Events
from gateway.instance.layout import Layout
from gateway.instance.logs import Logs
from gateway.instance.memory.budget import MemoryBudget
from gateway.instance.passfile import PassfileError
from gateway.instance.portmapper import PortMapper
from gateway.instance.settings import Settings, SettingsError
from gateway.journal.journal import SEGMENT_AGE, Journal
from gateway.messaging.destination import Destination
from gateway.messaging.errors import AuthenticationFailed
from gateway.messaging.provider import Credentials
from gateway.reactor.clocks import wall_ms
from gateway.stomp.listeners import Listener
from gateway.stomp.open_listeners import ListenerView
from gateway.stomp.service import Client, StompService
from gateway.stomp.session.session import Session
from gateway.tls import server_files


@dataclass(frozen=True)
class Admission:
    """Who may connect and administer.

    :param read_again: reads the files of users and rules again, for those who are connected, too.
    """

    users: Repositories
    rules: AccessRules
    read_again: Callable[[], None]


#: What the access control file calls the service that administrators connect to.
_SERVICE: Final = "ADMIN"


def admin_contexts(layout: Layout, settings: Settings) -> ServerContextFactory | None:
    """Return the factory of the admin service's TLS contexts.

    It has the server's certificate; None where the service speaks in the clear.

    :raises NoTLS: there is no certificate.
    :raises CertificateFileError: a file cannot be used.
    """
    if not settings[TLS_ENABLED]:
        return None
    return ServerContextFactory(server_files(layout, settings, TLS_ENABLED.name))


def admin_service(
    reactor: Any,
    configuration: Configuration,
    bridges: BridgeServiceManager,
    loader: BridgeLoader,
    provider: EmbeddedProvider,
    admission: Admission,
    management: MessageManagement,
    logs: Logs,
    port_mapper: PortMapper,
    tls: ServerContextFactory | None,
    journal: Journal,
    memory: MemoryBudget,
    ownership: Ownership,
    cluster: BridgeOwnership | None,
    troubles: Callable[[], Sequence[str]],
    certificates: Callable[[], Mapping[str, datetime]],
) -> AdminService:
    """Make the owner's admin service, with its console; it is not started.

    :param management: answers requests that come as messages, from now on.
    :param tls: as :func:`admin_contexts` gives it.
    :param cluster: of its bridges; None without one.
    :param troubles: why clients cannot be served, sentences.
    :param certificates: when those end that are shown, by service.
    """
    settings = configuration.settings
    log = Logger(namespace="gateway.admin")

    def credentials() -> Credentials:
        options = AdminOptions.read(settings)
        return Credentials(options.user, options.password)

    def all_troubles() -> list[str]:
        away = [each for stomp in _stomp(bridges) for each in stomp.behind if each.away]
        short = {each.trouble for each in away}
        return [
            *(text for text in troubles() if text not in short),
            *(each.detail for each in away),
        ]

    broker = _broker(configuration, provider, bridges)
    dead = DeadMessages(reactor, provider, credentials, log)
    explanations = Explanations(
        Sources(
            reactor,
            provider,
            credentials,
            bridges,
            partial(_stomp_service, bridges),
            partial(_owners, bridges),
            lambda: () if cluster is None else cluster.elsewhere(),
            partial(_behind, bridges),
            journal,
            configuration.layout.journal,
            settings[SEGMENT_AGE],
        )
    )
    return AdminService(
        reactor,
        AdminOptions.read(settings),
        [
            BridgeResources(bridges, logs.bridge, log, partial(wall_ms, reactor), cluster),
            DeadMessageResources(dead, bridges),
            _metrics(reactor, bridges, broker, journal, memory, settings, certificates),
            BrokerResources(
                broker,
                BranchAdministration(provider),
                lambda: {"journal": asdict(journal.standing())},
            ),
            QueueMessages(reactor, provider, credentials, partial(broker.destination, "queue")),
            MessageOrders(reactor, broker.messages, provider.resource),
            _listeners(bridges),
            OwnershipResources(ownership),
            EventResources(reactor, logs.events),
            DoctorResources(
                reactor,
                _configured(configuration),
                memory,
                Served(
                    partial(_listener_views, bridges),
                    journal.standing,
                    broker.dead_queues,
                    all_troubles,
                ),
            ),
            WhyResources(explanations),
            SubscriptionResources(provider, partial(_sessions, bridges)),
            SearchResources(MessageSearch(reactor, provider.broker), explanations),
            TraceResources(reactor, journal, partial(_connected, provider)),
            partial(management.serve, broker, provider),
            AccountResources(_accounts(reactor, configuration, admission)),
            DefinitionResources(
                BridgeDefinitions(
                    reactor, configuration, loader, bridges, partial(_waiting, bridges)
                ),
                bridges,
            ),
        ],
        administrators(reactor, admission.users, admission.rules, configuration.settings),
        port_mapper.register,
        tls,
        log,
        console(
            reactor,
            settings,
            configuration.layout,
            bridges,
            broker.broker_of,
            Paging(provider, partial(_clients, bridges), partial(_owners, bridges)),
            all_troubles,
            partial(_websockets, bridges),
        ),
    )


def standby_admin_service(
    reactor: Any,
    configuration: Configuration,
    ownership: Ownership,
    admission: Admission,
    port_mapper: PortMapper,
    tls: ServerContextFactory | None,
    events: Events,
) -> AdminService:
    """Make the admin service of a process that stands by; it is not started.

    :param tls: as :func:`admin_contexts` gives it.
    """
    return AdminService(
        reactor,
        AdminOptions.read(configuration.settings),
        [
            OwnershipResources(ownership),
            EventResources(reactor, events),
            DoctorResources(reactor, _configured(configuration), None, None),
            StandbyWhyResources(ownership),
        ],
        administrators(reactor, admission.users, admission.rules, configuration.settings),
        port_mapper.register,
        tls,
        Logger(namespace="gateway.admin"),
    )


def _accounts(reactor: Any, configuration: Configuration, admission: Admission) -> Accounts:
    options, layout = AdminOptions.read(configuration.settings), configuration.layout
    return Accounts(
        reactor,
        layout.users,
        layout.access_control,
        admission.read_again,
        options.user if options.password else "",
    )


def _behind(bridges: BridgeServiceManager, destination: Destination) -> Behind | None:
    """Return the other broker that has a destination of STOMP clients."""
    return next((stomp.broker_of(destination) for stomp in _stomp(bridges)), None)


def _waiting(bridges: BridgeServiceManager, name: str) -> int:
    """Return how many transactions of a bridge wait for a broker."""
    states = COUNTED["waiting"]
    return sum(each.state in states for each in transactions_of(bridges.find(name)))


def _metrics(
    reactor: Any,
    bridges: BridgeServiceManager,
    broker: BrokerAdministration,
    journal: Journal,
    memory: MemoryBudget,
    settings: Settings,
    certificates: Callable[[], Mapping[str, datetime]],
) -> MetricsResource:
    return MetricsResource(
        reactor,
        bridges,
        (
            lambda: bridge_metrics(bridges),
            lambda: chain.from_iterable(
                stomp_metrics(stomp.service.counters) for stomp in _stomp(bridges)
            ),
            lambda: behind_metrics([each for stomp in _stomp(bridges) for each in stomp.behind]),
            lambda: transaction_metrics(bridges, wall_ms(reactor)),
            lambda: journal_metrics(journal.standing()),
            lambda: tracing_metrics(journal.tracer),
            lambda: memory_metrics(memory.usage()),
            lambda: certificate_metrics(certificates()),
        ),
        partial(destination_metrics, broker, settings[METRICS_DESTINATIONS]),
    )


def administrators(
    reactor: Any, users: Repositories, rules: AccessRules, settings: Settings
) -> Authenticate:
    """Return what tells who may use the admin service, and in which role.

    Those administer whom the access control file lets connect to the ADMIN service. Settings name
    the groups of those who operate, and of those who look.
    """
    role_of, now = roles(reactor, users, rules, settings)

    async def authenticate(user: str, password: str, address: str) -> Identity | None:
        try:
            principal = await users.authenticate(Credentials(user, password, address))
        except AuthenticationFailed:
            return None
        role = role_of(principal)
        return None if role is None else Identity(user, role, partial(now, principal, address))

    return authenticate


def roles(
    reactor: Any, users: Repositories, rules: AccessRules, settings: Settings
) -> tuple[Callable[[Principal], Role | None], Callable[[Principal, str], Role | None]]:
    """Return what tells the role of a user; None for none.

    :returns: of one who was let in just now; and of one who was let in before, from an address, as
        it is now.
    """
    operators: tuple[str, ...] = settings[OPERATORS]
    viewers: tuple[str, ...] = settings[VIEWERS]

    def role_of(principal: Principal) -> Role | None:
        if rules.may_connect(principal, _SERVICE):
            return Role.ADMINISTRATOR
        if not principal.groups.isdisjoint(operators):
            return Role.OPERATOR
        return None if principal.groups.isdisjoint(viewers) else Role.VIEWER

    def now(principal: Principal, address: str) -> Role | None:
        if principal.until is not None and wall_ms(reactor) >= principal.until * 1000:
            return None
        if principal.repository == ELSEWHERE:
            # Another broker has let it in, and no command would.
            return None
        try:
            return role_of(users.readmit(principal, address))
        except AuthenticationFailed:
            return None

    return role_of, now


def management(
    reactor: Any, configuration: Configuration, users: Repositories, rules: AccessRules
) -> MessageManagement:
    """Make what carries out clients' requests to manage the broker.

    It answers once :func:`admin_service` has what it stands for.
    """
    _, now = roles(reactor, users, rules, configuration.settings)
    return MessageManagement(reactor, now, Logger(namespace="gateway.admin"))


def _broker(
    configuration: Configuration, provider: EmbeddedProvider, bridges: BridgeServiceManager
) -> BrokerAdministration:
    store = configuration.settings[broker_settings.PERSIST_STORE]
    if configuration.jdbc is not None:
        store = f"postgresql {configuration.jdbc.described}, schema {configuration.jdbc.schema}"
    elif store == "file":
        store = "sqlite"

    return BrokerAdministration(
        provider,
        partial(_clients, bridges),
        holders=partial(_owners, bridges),
        varhome=str(configuration.layout.varhome),
        store=store,
    )


def _clients(bridges: BridgeServiceManager) -> list[Client]:
    return [client for stomp in _stomp(bridges) for client in stomp.service.clients]


def _owners(bridges: BridgeServiceManager) -> dict[int, str]:
    """What of this process has which connection, by the ``id`` of each."""
    return {
        id(connection): f"bridge {jms.name}, {whose}"
        for jms in map(as_jms, bridges.bridges)
        if jms is not None
        for connection, whose in jms.open_connections()
    }


def _stomp_service(bridges: BridgeServiceManager) -> StompService | None:
    return next((stomp.service for stomp in _stomp(bridges)), None)


def _sessions(bridges: BridgeServiceManager) -> Mapping[int, Session]:
    """Return STOMP clients' sessions, by the ``id`` of each connection."""
    stomp = _stomp_service(bridges)
    return {} if stomp is None else stomp.sessions


def _connected(provider: EmbeddedProvider, number: int) -> bool:
    return provider.numbered(number) is not None


def _listeners(bridges: BridgeServiceManager) -> ListenerResources:
    stomp = next(_stomp(bridges), None)
    if stomp is None:
        return ListenerResources(None, None)
    return ListenerResources(stomp.service, stomp.read_again)


def _configured(configuration: Configuration) -> Configured:
    settings = configuration.settings
    return Configured(
        configuration.layout,
        settings,
        configuration.warnings,
        configuration.passfile,
        configuration.jdbc is None and settings[broker_settings.PERSIST_STORE] != "memory",
        partial(_refused, configuration),
    )


def _refused(configuration: Configuration) -> Sequence[str]:
    """Return what the next start would refuse of settings and passfile."""
    try:
        reread(configuration)
        settings_now(configuration)
    except SettingsError as error:
        return [str(each) for each in error.problems]
    except PassfileError as error:
        return [str(error)]
    return ()


def _listener_views(bridges: BridgeServiceManager) -> list[ListenerView]:
    return [view for stomp in _stomp(bridges) for view in stomp.service.listeners.views()]


def _websockets(bridges: BridgeServiceManager) -> list[tuple[Listener, ListenerView]]:
    return [each for stomp in _stomp(bridges) for each in stomp.service.listeners.websockets()]


def _stomp(bridges: BridgeServiceManager) -> Iterator[StompBridge]:
    return (bridge for bridge in bridges.bridges if isinstance(bridge, StompBridge))
