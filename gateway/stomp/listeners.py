"""Where the STOMP bridge listens.

Owns the settings of listeners, and what the port mapper and ``imqcmd`` call them. ``tcp`` and
``tls`` always exist, by the settings of Open MQ's Table 12-10; others have names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from gateway.instance.settings import (
    Boolean,
    Choice,
    Decimal,
    Duration,
    Octets,
    Port,
    Setting,
    Settings,
    SettingsError,
    Text,
    Words,
)
from gateway.stomp.lifetime import Lifetime
from gateway.stomp.profiles import OPENMQ, PROFILES, Profile
from gateway.stomp.proxies import NONE as NO_PROXIES
from gateway.stomp.proxies import Proxies
from gateway.stomp.websocket.upgrade import ANY_ORIGIN, Rules

TCP: Final = "tcp"
TLS: Final = "tls"
NO_LISTENER: Final = "no protocol enabled: set imq.bridge.stomp.tcp.enabled, imq.bridge.stomp.tls.enabled or imq.bridge.stomp.listener.NAME.port"

PORT: Final = Setting(
    "imq.bridge.stomp.listener.NAME.port",
    Port(),
    0,
    "Port of a listener besides tcp and tls; there is one for each NAME that has this",
)
ADDRESS: Final = Setting(
    "imq.bridge.stomp.listener.NAME.address",
    Text(),
    "",
    "Address that it listens on; empty is that of the other listeners",
)
ENCRYPTED: Final = Setting(
    "imq.bridge.stomp.listener.NAME.tls",
    Boolean(),
    False,
    "Whether it speaks TLS, with the bridge's certificate",
)
CLIENT_AUTH: Final = Setting(
    "imq.bridge.stomp.listener.NAME.requireClientAuth",
    Boolean(),
    False,
    "Whether its TLS clients must show a certificate; without it as imq.bridge.stomp.tls.requireClientAuth says",
)
WEBSOCKET: Final = Setting(
    "imq.bridge.stomp.listener.NAME.ws", Boolean(), False, "Whether it takes STOMP over WebSocket"
)
PATH: Final = Setting(
    "imq.bridge.stomp.listener.NAME.path", Text(), "/stomp", "Path of the WebSocket"
)
ORIGINS: Final = Setting(
    "imq.bridge.stomp.listener.NAME.origins",
    Words(),
    (),
    "Origins of pages that may connect by WebSocket, besides those of the same host, as https://shop.example.org; * is all",
)
FRAME: Final = Setting(
    "imq.bridge.stomp.listener.NAME.webSocketMaxFramePayloadLength",
    Octets(unlimited=False),
    0,
    "Artemis' webSocketMaxFramePayloadLength: octets that a frame of a WebSocket may carry; 0 is any number",
)
PROXIES: Final = Setting(
    "imq.bridge.stomp.listener.NAME.proxies",
    Words(),
    (),
    "Addresses or networks of proxies, whose PROXY header and X-Forwarded-For say who the client is; also for tcp and tls",
)
PROFILE: Final = Setting(
    "imq.bridge.stomp.listener.NAME.profile",
    Choice(*PROFILES),
    OPENMQ.name,
    "The server whose habits its clients find; also for tcp and tls. Without it as imq.bridge.stomp.profile says.",
)
ANYCAST: Final = Setting(
    "imq.bridge.stomp.listener.NAME.anycastPrefix",
    Words(),
    (),
    "Artemis' anycastPrefix: how clients begin names of queues, as jms.queue. or /queue/; for the profile artemis, also for tcp and tls",
)
MULTICAST: Final = Setting(
    "imq.bridge.stomp.listener.NAME.multicastPrefix",
    Words(),
    (),
    "Artemis' multicastPrefix: how clients begin names of topics, as jms.topic. or /topic/; for the profile artemis, also for tcp and tls",
)
TTL: Final = Setting(
    "imq.bridge.stomp.listener.NAME.connectionTtl",
    Duration("milliseconds"),
    0,
    "Artemis' connectionTtl: how long a client may send nothing that has promised no heart-beats; 0 is for ever; for the profile artemis, also for tcp and tls",
)
TTL_MIN: Final = Setting(
    "imq.bridge.stomp.listener.NAME.connectionTtlMin",
    Duration("milliseconds"),
    Lifetime().shortest,
    "Artemis' connectionTtlMin: how long one may that has promised them, at least; for the profile artemis, also for tcp and tls",
)
TTL_MAX: Final = Setting(
    "imq.bridge.stomp.listener.NAME.connectionTtlMax",
    Duration("milliseconds"),
    Lifetime().longest,
    "Artemis' connectionTtlMax: how long such a one may at most; 0 is no limit; for the profile artemis, also for tcp and tls",
)
TTL_FACTOR: Final = Setting(
    "imq.bridge.stomp.listener.NAME.heartBeatToConnectionTtlModifier",
    Decimal(1.0, 100.0),
    Lifetime().factor,
    "Artemis' heartBeatToConnectionTtlModifier: how many promised intervals such a one may; for the profile artemis, also for tcp and tls",
)
NO_SERVER: Final = Setting(
    "imq.bridge.stomp.listener.NAME.disableStompServerHeader",
    Boolean(),
    False,
    "Artemis' disableStompServerHeader: whether CONNECTED has no server header; for the profile artemis, also for tcp and tls",
)
HOSTS: Final = Setting(
    "imq.bridge.stomp.listener.NAME.hosts",
    Words(),
    (),
    "Virtual hosts that its clients may name in host of CONNECT, as / or broker.example.org; empty is any; also for tcp and tls",
)
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    PORT,
    ADDRESS,
    ENCRYPTED,
    CLIENT_AUTH,
    WEBSOCKET,
    PATH,
    ORIGINS,
    FRAME,
    PROXIES,
    PROFILE,
    ANYCAST,
    MULTICAST,
    TTL,
    TTL_MIN,
    TTL_MAX,
    TTL_FACTOR,
    NO_SERVER,
    HOSTS,
)
#: In the order of :class:`Lifetime`.
_LIFETIME: Final[tuple[Setting[Any], ...]] = (TTL, TTL_MIN, TTL_MAX, TTL_FACTOR)
#: What only the profile artemis gives a meaning.
_OF_ARTEMIS: Final[tuple[Setting[Any], ...]] = (ANYCAST, MULTICAST, *_LIFETIME, NO_SERVER)
#: What the listeners ``tcp`` and ``tls`` may have, too.
_OF_ALL: Final = (PROXIES, PROFILE, *_OF_ARTEMIS, HOSTS)

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Listener:
    """One port.

    :param address: what it listens on; empty is everything.
    :param tls: it speaks TLS.
    :param client_auth: its clients must show a certificate.
    :param websocket: which requests become WebSocket's; None: STOMP comes as it is.
    :param proxies: whose word is taken for who the client is.
    :param profile: the habits that its clients find.
    """

    name: str
    port: int
    address: str = ""
    tls: bool = False
    client_auth: bool = False
    websocket: Rules | None = None
    proxies: Proxies = NO_PROXIES
    profile: Profile = OPENMQ

    @property
    def service(self) -> str:
        """What ``imqcmd`` calls it, and the port mapper with ``[bridge]`` behind."""
        return {TCP: "stomp", TLS: "sslstomp"}.get(self.name, f"stomp-{self.name}")

    def said(self, port: int) -> str:
        """Where it listens, for people. :param port: that it has."""
        layers = ("WebSocket", self.websocket is not None), ("TLS", self.tls)
        over = " over ".join(layer for layer, there in layers if there) or "TCP"
        named = "" if self.name in (TCP, TLS) else f", listener {self.name}"
        return f"STOMP over {over} on {self.address or '*'}:{port}{named}"

    @property
    def protocol(self) -> str:
        """What the port mapper says that it speaks."""
        if self.websocket is not None:
            return "stomp[WSS]" if self.tls else "stomp[WS]"
        return "stomp[SSL/TLS]" if self.tls else "stomp[TCP]"


def read_listeners(
    settings: Settings,
    hostname: str,
    client_auth: bool = False,
    profiles: Mapping[str, Profile] = PROFILES,
    profile: Profile = OPENMQ,
) -> tuple[Listener, ...]:
    """Return the listeners besides ``tcp`` and ``tls`` that settings give.

    :param hostname: the address of those that have none of their own.
    :param client_auth: whether those that speak TLS and do not say so ask for certificates.
    :param profiles: by their names, and
    :param profile: that of those that do not say it.
    :raises SettingsError: one of them cannot be.
    """
    names = dict.fromkeys(name for setting in SETTINGS for name in settings.names(setting))
    for name in (TCP, TLS):
        given = [each for each in SETTINGS if each not in _OF_ALL and settings.is_given(each, name)]
        if given:
            wanted = f"another name: the listener {name} has imq.bridge.stomp.{name}.*, and only .proxies, .profile, .hosts and what is of the profile artemis here"
            raise SettingsError([settings.problem(given[0], wanted, name)])
        names.pop(name, None)
    return tuple(
        _read(
            settings,
            name,
            hostname,
            client_auth,
            read_profile(settings, name, profiles, profile),
        )
        for name in names
    )


def read_profile(
    settings: Settings, name: str, profiles: Mapping[str, Profile], default: Profile
) -> Profile:
    """Return the profile of a listener.

    :raises SettingsError: it has settings of Artemis' acceptors, and another profile; or one is bad.
    """
    profile = default
    if settings.is_given(PROFILE, name):
        profile = profiles[settings.named(PROFILE, name)]
    for setting in _OF_ARTEMIS:
        if settings.named(setting, name) != setting.default and not profile.routing_types:
            wanted = f"imq.bridge.stomp.listener.{name}.profile=artemis, too; it means nothing in the profile {profile.name}"
            raise SettingsError([settings.problem(setting, wanted, name)])
    anycast, multicast = settings.named(ANYCAST, name), settings.named(MULTICAST, name)
    return replace(
        profile.with_prefixes(anycast, multicast),
        hosts=settings.named(HOSTS, name),
        server="" if settings.named(NO_SERVER, name) else profile.server,
        lifetime=_read_lifetime(settings, name),
    )


def _read_lifetime(settings: Settings, name: str) -> Lifetime | None:
    """Return how long clients of a listener may be silent.

    :returns: None where no setting says it.
    :raises SettingsError: the bounds exclude each other.
    """
    if not any(settings.is_given(setting, name) for setting in _LIFETIME):
        return None
    lifetime = Lifetime(*(settings.named(setting, name) for setting in _LIFETIME))
    if 0 < lifetime.longest < lifetime.shortest:
        wanted = f"at least connectionTtlMin, {lifetime.shortest} ms"
        raise SettingsError([settings.problem(TTL_MAX, wanted, name)])
    return lifetime


def read_proxies(settings: Settings, name: str) -> Proxies:
    """Return the proxies of a listener.

    :raises SettingsError: one of them is no address and no network.
    """
    networks = settings.named(PROXIES, name)
    try:
        return Proxies(networks)
    except ValueError as error:
        raise SettingsError(
            [
                settings.problem(
                    PROXIES, f"addresses or networks such as 10.0.0.0/24 ({error})", name
                )
            ]
        ) from None


def _read(
    settings: Settings, name: str, hostname: str, client_auth: bool, profile: Profile
) -> Listener:
    if not _NAME.fullmatch(name) or not settings.is_given(PORT, name):
        given = next(each for each in SETTINGS if settings.is_given(each, name))
        wanted = (
            f"imq.bridge.stomp.listener.{name}.port, too"
            if _NAME.fullmatch(name)
            else "a name of at most 40 letters, digits, _ and -"
        )
        raise SettingsError([settings.problem(given, wanted, name)])
    tls = settings.named(ENCRYPTED, name)
    if settings.is_given(CLIENT_AUTH, name):
        client_auth = settings.named(CLIENT_AUTH, name)
        if client_auth and not tls:
            wanted = f"imq.bridge.stomp.listener.{name}.tls=true, too"
            raise SettingsError([settings.problem(CLIENT_AUTH, wanted, name)])
    websocket = None
    if settings.named(WEBSOCKET, name):
        path, origins = settings.named(PATH, name), settings.named(ORIGINS, name)
        if not path.startswith("/") or not path.isascii() or not path.isprintable() or " " in path:
            raise SettingsError([settings.problem(PATH, "a path such as /stomp", name)])
        for origin in origins:
            if origin != ANY_ORIGIN and not _is_origin(origin):
                raise SettingsError(
                    [
                        settings.problem(
                            ORIGINS,
                            "origins such as https://shop.example.org or http://localhost:3000, or *",
                            name,
                            value=origin,
                        )
                    ]
                )
        websocket = Rules(path, frozenset(origins), settings.named(FRAME, name))
    return Listener(
        name,
        settings.named(PORT, name),
        settings.named(ADDRESS, name) or hostname,
        tls,
        tls and client_auth,
        websocket,
        read_proxies(settings, name),
        profile,
    )


def _is_origin(text: str) -> bool:
    """Whether a browser could say this of a page (RFC 6454).

    It is a scheme and a host in lower case, without a path or the port that is usual.
    """
    try:
        parts = urlsplit(text)
        usual = {"http": 80, "https": 443}.get(parts.scheme)
        plain = text.isascii() and text == text.lower() == f"{parts.scheme}://{parts.netloc}"
        return (
            bool(parts.scheme and parts.hostname)
            and plain
            and parts.port != usual
            and parts.username is None
        )
    except ValueError:
        return False
