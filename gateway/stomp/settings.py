"""The settings of the STOMP bridge: Open MQ's Table 12-10, and new ones.

Owns their names, defaults and meaning. Certificates and the transformer's class are settings of the
bridge too, but what they name is made by the composition root. Those that every bridge has, its log
among them, are in :mod:`gateway.instance.settings_general`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gateway.instance.settings import (
    Boolean,
    Choice,
    Decimal,
    Duration,
    Integer,
    Octets,
    Port,
    Setting,
    Settings,
    Text,
)
from gateway.stomp import listeners, user_limits
from gateway.stomp.listeners import Listener, read_listeners, read_profile, read_proxies
from gateway.stomp.profiles import OPENMQ, PROFILES, Profile
from gateway.stomp.proxies import NONE as NO_PROXIES
from gateway.stomp.proxies import Proxies
from gateway.stomp.user_limits import UNLIMITED, UserLimits

HOSTNAME: Final = Setting(
    "imq.bridge.stomp.hostname",
    Text(),
    "",
    "Address to listen on, over imq.hostname; empty is every one",
)
TCP_ENABLED: Final = Setting(
    "imq.bridge.stomp.tcp.enabled", Boolean(), True, "Whether TCP connections are accepted"
)
TCP_PORT: Final = Setting("imq.bridge.stomp.tcp.port", Port(), 7672, "Port for TCP connections")
TLS_ENABLED: Final = Setting(
    "imq.bridge.stomp.tls.enabled", Boolean(), False, "Whether TLS connections are accepted"
)
TLS_PORT: Final = Setting("imq.bridge.stomp.tls.port", Port(), 7673, "Port for TLS connections")
TLS_REQUIRE_CLIENT_AUTH: Final = Setting(
    "imq.bridge.stomp.tls.requireClientAuth",
    Boolean(),
    False,
    "Whether TLS clients must show a certificate. The gateway.properties of a new instance has true.",
)
TLS_CERTIFICATE_LOGIN: Final = Setting(
    "imq.bridge.stomp.tls.certificateLogin",
    Boolean(),
    False,
    "Whether the common name of a verified client certificate stands in for login and passcode",
)
TLS_CERTIFICATE_GROUPS: Final = Setting(
    "imq.bridge.stomp.tls.certificateGroups",
    Boolean(),
    False,
    "Whether the organizational units (OU) of such a certificate are the user's groups; the user need not be in etc/users then",
)
CONSUMER_FLOW_LIMIT: Final = Setting(
    "imq.bridge.stomp.consumerFlowLimit",
    Integer(1),
    1000,
    "Most unacknowledged messages of a transacted subscription, and of others with ack client that give no prefetch",
    unit="messages",
)
MESSAGE_TRANSFORMER: Final = Setting(
    "imq.bridge.stomp.messageTransformer",
    Text(),
    "",
    "Class of the message transformer, as package.module:Class",
)

PROFILE: Final = Setting(
    "imq.bridge.stomp.profile",
    Choice(*PROFILES),
    OPENMQ.name,
    "The server whose habits clients find; a listener may have its own",
)
SERVER: Final = Setting(
    "imq.bridge.stomp.server",
    Text(),
    "",
    "The server header of CONNECTED; empty is what the profile says, stomp-gateway/VERSION by default",
)
ACK_TRANSACTION: Final = Setting(
    "imq.bridge.stomp.ack.transaction",
    Choice("refuse", "join"),
    "refuse",
    "What ACK and NACK with a transaction header do for a subscription that is not transacted; without it as the profile says",
)
UNSUBSCRIBE_GRACE: Final = Setting(
    "imq.bridge.stomp.unsubscribe.grace",
    Duration("milliseconds"),
    2000,
    "How long after UNSUBSCRIBE its deliveries may still be acknowledged before they go back",
)
SET_JMSX_USER_ID: Final = Setting(
    "imq.bridge.stomp.setJMSXUserID",
    Boolean(),
    False,
    "Whether MESSAGE tells by JMSXUserID which user sent it",
)

HEARTBEAT_SEND: Final = Setting(
    "imq.bridge.stomp.heartbeat.send",
    Duration("milliseconds"),
    500,
    "Shortest heart-beat promised to clients; 0 sends none",
)
HEARTBEAT_RECEIVE: Final = Setting(
    "imq.bridge.stomp.heartbeat.receive",
    Duration("milliseconds"),
    500,
    "Shortest heart-beat wanted from clients, who choose a longer one if they like; 0 wants none",
)
HEARTBEAT_TOLERANCE: Final = Setting(
    "imq.bridge.stomp.heartbeat.tolerance",
    Decimal(1.0, 100.0),
    2.0,
    "How many promised intervals a client may be silent before it is dropped",
)
CONNECT_TIMEOUT: Final = Setting(
    "imq.bridge.stomp.connect.timeout",
    Duration("seconds", 1),
    10,
    "How long a new connection may take to be CONNECTED",
)

CONNECT_FRAME: Final = Setting(
    "imq.bridge.stomp.limit.connectFrame",
    Octets(unlimited=False, minimum=1024),
    64 * 1024,
    "Largest frame before CONNECTED",
)
FRAME: Final = Setting(
    "imq.bridge.stomp.limit.frame",
    Octets(minimum=512),
    -1,
    "Largest frame, from its command to the NUL at its end; -1 is what its headers and its body may have together",
)
BODY: Final = Setting(
    "imq.bridge.stomp.limit.body",
    Octets(unlimited=False),
    70 * 1024 * 1024,
    "Largest body of a frame",
)
HEADER_COUNT: Final = Setting(
    "imq.bridge.stomp.limit.headers", Integer(10), 1000, "Most headers of a frame", unit="headers"
)
HEADER_LINE: Final = Setting(
    "imq.bridge.stomp.limit.headerLine",
    Octets(unlimited=False, minimum=256),
    10 * 1024,
    "Longest header line",
)
HEADER_BLOCK: Final = Setting(
    "imq.bridge.stomp.limit.headerBlock",
    Octets(unlimited=False, minimum=1024),
    64 * 1024,
    "Largest header block of a frame: its command and all its header lines",
)
MAX_CONNECTIONS: Final = Setting(
    "imq.bridge.stomp.limit.connections",
    Integer(-1),
    10_000,
    "Most connections; -1 is no limit",
    unit="connections",
)
MAX_CONNECTIONS_PER_ADDRESS: Final = Setting(
    "imq.bridge.stomp.limit.connectionsPerAddress",
    Integer(-1),
    -1,
    "Most connections from one IP address; -1 is no limit",
    unit="connections",
)
MAX_SUBSCRIPTIONS: Final = Setting(
    "imq.bridge.stomp.limit.subscriptions",
    Integer(1),
    1000,
    "Most subscriptions of one connection",
    unit="subscriptions",
)
MAX_TEMPORARIES: Final = Setting(
    "imq.bridge.stomp.limit.temporaries",
    Integer(1),
    1000,
    "Most temporary destinations of one connection",
    unit="destinations",
)
OUTPUT_WINDOW: Final = Setting(
    "imq.bridge.stomp.output.window",
    Octets(unlimited=False, minimum=1024),
    256 * 1024,
    "Octets of bodies sent to one subscription before the client has read them",
)
OUTPUT_LIMIT: Final = Setting(
    "imq.bridge.stomp.output.limit",
    Octets(unlimited=False, minimum=64 * 1024),
    256 * 1024 * 1024,
    "Octets waiting for one client that does not read, beyond which it is dropped",
)
OUTPUT_TIMEOUT: Final = Setting(
    "imq.bridge.stomp.output.timeout",
    Duration("seconds", 1),
    60,
    "How long a client may read nothing of what waits for it before it is dropped. Where the system does not tell how much is read (Linux does), "
    "it is the time for all that waits, and a second more for each 16 KiB of it.",
)
INPUT_TIMEOUT: Final = Setting(
    "imq.bridge.stomp.input.timeout",
    Duration("seconds", 1),
    60,
    "How long a frame that has begun may go on more slowly than imq.bridge.stomp.input.rate before its client is ended. "
    "Time in which the gateway itself does not read does not count.",
)
INPUT_RATE: Final = Setting(
    "imq.bridge.stomp.input.rate",
    Octets(unlimited=False, minimum=1),
    1024,
    "Octets a second at which a frame that has begun must go on",
)
INPUT_HOLD: Final = Setting(
    "imq.bridge.stomp.input.hold",
    Octets(unlimited=False, minimum=1024),
    1024 * 1024,
    "Octets of a client's frames held back while a destination has no room; beyond that the client is not read",
)

#: Every one of them, in the order of the reference.
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    HOSTNAME,
    TCP_ENABLED,
    TCP_PORT,
    TLS_ENABLED,
    TLS_PORT,
    TLS_REQUIRE_CLIENT_AUTH,
    TLS_CERTIFICATE_LOGIN,
    TLS_CERTIFICATE_GROUPS,
    CONSUMER_FLOW_LIMIT,
    MESSAGE_TRANSFORMER,
    PROFILE,
    SERVER,
    ACK_TRANSACTION,
    UNSUBSCRIBE_GRACE,
    SET_JMSX_USER_ID,
    HEARTBEAT_SEND,
    HEARTBEAT_RECEIVE,
    HEARTBEAT_TOLERANCE,
    CONNECT_TIMEOUT,
    CONNECT_FRAME,
    FRAME,
    BODY,
    HEADER_COUNT,
    HEADER_LINE,
    HEADER_BLOCK,
    MAX_CONNECTIONS,
    MAX_CONNECTIONS_PER_ADDRESS,
    MAX_SUBSCRIPTIONS,
    MAX_TEMPORARIES,
    OUTPUT_WINDOW,
    OUTPUT_LIMIT,
    OUTPUT_TIMEOUT,
    INPUT_TIMEOUT,
    INPUT_RATE,
    INPUT_HOLD,
    *user_limits.SETTINGS,
    *listeners.SETTINGS,
)


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What a session needs of the settings, named as the constants above.

    Durations are in the settings' own units.
    """

    profile: Profile = OPENMQ
    consumer_flow_limit: int = CONSUMER_FLOW_LIMIT.default
    unsubscribe_grace_ms: int = UNSUBSCRIBE_GRACE.default
    tell_user: bool = SET_JMSX_USER_ID.default
    certificate_login: bool = TLS_CERTIFICATE_LOGIN.default
    certificate_groups: bool = TLS_CERTIFICATE_GROUPS.default
    heartbeat_send_ms: int = HEARTBEAT_SEND.default
    heartbeat_receive_ms: int = HEARTBEAT_RECEIVE.default
    max_subscriptions: int = MAX_SUBSCRIPTIONS.default
    max_temporaries: int = MAX_TEMPORARIES.default
    output_window: int = OUTPUT_WINDOW.default
    input_hold: int = INPUT_HOLD.default


@dataclass(frozen=True, slots=True)
class TransportOptions:
    """What connections need to know of the settings, besides their sessions."""

    connect_timeout_s: int = CONNECT_TIMEOUT.default
    heartbeat_tolerance: float = HEARTBEAT_TOLERANCE.default
    connect_frame: int = CONNECT_FRAME.default
    frame: int = FRAME.default
    body: int = BODY.default
    header_count: int = HEADER_COUNT.default
    header_line: int = HEADER_LINE.default
    header_block: int = HEADER_BLOCK.default
    max_connections: int = MAX_CONNECTIONS.default
    user_limits: UserLimits = UNLIMITED
    max_connections_per_address: int = MAX_CONNECTIONS_PER_ADDRESS.default
    output_limit: int = OUTPUT_LIMIT.default
    output_timeout_s: int = OUTPUT_TIMEOUT.default
    input_timeout_s: int = INPUT_TIMEOUT.default
    input_rate: int = INPUT_RATE.default


@dataclass(frozen=True, slots=True)
class StompOptions:
    """The settings of the STOMP bridge as values.

    :param hostname: the address to listen on; empty is every one.
    :param tls_client_auth: the clients of the listener ``tls`` must show a certificate.
    :param tcp_proxies: and
    :param tls_proxies: whose word these two listeners take.
    :param tcp_profile: and
    :param tls_profile: the habits of these two.
    :param others: listeners besides those that the settings of ``tcp`` and ``tls`` describe.
    """

    hostname: str = ""
    tcp_enabled: bool = TCP_ENABLED.default
    tcp_port: int = TCP_PORT.default
    tls_enabled: bool = TLS_ENABLED.default
    tls_port: int = TLS_PORT.default
    tls_client_auth: bool = TLS_REQUIRE_CLIENT_AUTH.default
    tcp_proxies: Proxies = NO_PROXIES
    tls_proxies: Proxies = NO_PROXIES
    tcp_profile: Profile = OPENMQ
    tls_profile: Profile = OPENMQ
    others: tuple[Listener, ...] = ()
    session: SessionOptions = field(default_factory=SessionOptions)
    transport: TransportOptions = field(default_factory=TransportOptions)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        """Where the bridge listens."""
        tcp = Listener(
            listeners.TCP,
            self.tcp_port,
            self.hostname,
            proxies=self.tcp_proxies,
            profile=self.tcp_profile,
        )
        tls = Listener(
            listeners.TLS,
            self.tls_port,
            self.hostname,
            tls=True,
            client_auth=self.tls_client_auth,
            proxies=self.tls_proxies,
            profile=self.tls_profile,
        )
        wanted = ((tcp, self.tcp_enabled), (tls, self.tls_enabled))
        return (*(listener for listener, enabled in wanted if enabled), *self.others)

    @classmethod
    def read(cls, settings: Settings, version: str, hostname: str = "") -> StompOptions:
        """The options that ``settings`` give.

        :param version: this software's version, for the ``server`` header.
        :param hostname: what ``imq.hostname`` says, for when the bridge has no own.
        :raises SettingsError: one of them is bad.
        """
        join = settings[ACK_TRANSACTION] == "join" if settings.is_given(ACK_TRANSACTION) else None
        profiles = {
            name: profile.adapted(version, settings[SERVER], join)
            for name, profile in PROFILES.items()
        }
        profile = profiles[settings[PROFILE]]
        session = SessionOptions(
            profile=profile,
            consumer_flow_limit=settings[CONSUMER_FLOW_LIMIT],
            unsubscribe_grace_ms=settings[UNSUBSCRIBE_GRACE],
            tell_user=settings[SET_JMSX_USER_ID],
            certificate_login=settings[TLS_CERTIFICATE_LOGIN],
            certificate_groups=settings[TLS_CERTIFICATE_GROUPS],
            heartbeat_send_ms=settings[HEARTBEAT_SEND],
            heartbeat_receive_ms=settings[HEARTBEAT_RECEIVE],
            max_subscriptions=settings[MAX_SUBSCRIPTIONS],
            max_temporaries=settings[MAX_TEMPORARIES],
            output_window=settings[OUTPUT_WINDOW],
            input_hold=settings[INPUT_HOLD],
        )
        transport = TransportOptions(
            connect_timeout_s=settings[CONNECT_TIMEOUT],
            heartbeat_tolerance=settings[HEARTBEAT_TOLERANCE],
            connect_frame=settings[CONNECT_FRAME],
            frame=settings[FRAME],
            body=settings[BODY],
            header_count=settings[HEADER_COUNT],
            header_line=settings[HEADER_LINE],
            header_block=settings[HEADER_BLOCK],
            max_connections=settings[MAX_CONNECTIONS],
            user_limits=UserLimits.read(settings),
            max_connections_per_address=settings[MAX_CONNECTIONS_PER_ADDRESS],
            output_limit=settings[OUTPUT_LIMIT],
            output_timeout_s=settings[OUTPUT_TIMEOUT],
            input_timeout_s=settings[INPUT_TIMEOUT],
            input_rate=settings[INPUT_RATE],
        )
        address = settings[HOSTNAME] or hostname
        client_auth = settings[TLS_REQUIRE_CLIENT_AUTH]
        return cls(
            hostname=address,
            tcp_proxies=read_proxies(settings, listeners.TCP),
            tls_proxies=read_proxies(settings, listeners.TLS),
            tcp_profile=read_profile(settings, listeners.TCP, profiles, profile),
            tls_profile=read_profile(settings, listeners.TLS, profiles, profile),
            others=read_listeners(settings, address, client_auth, profiles, profile),
            tcp_enabled=settings[TCP_ENABLED],
            tcp_port=settings[TCP_PORT],
            tls_enabled=settings[TLS_ENABLED],
            tls_port=settings[TLS_PORT],
            tls_client_auth=client_auth,
            session=session,
            transport=transport,
        )
