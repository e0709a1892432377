"""The settings of the admin service.

Owns their names, defaults and meaning, and the rule that the service speaks in the clear on this
machine only.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.instance import settings_general
from gateway.instance.setting_types import Duration, Words
from gateway.instance.settings import Boolean, Integer, Port, Setting, Settings, SettingsError, Text

HOSTNAME: Final = Setting(
    "imq.bridge.admin.hostname",
    Text(),
    "127.0.0.1",
    "Host name or address on which the admin service listens; one that is not the loopback needs imq.bridge.admin.tls.enabled.",
)
PORT: Final = Setting(
    "imq.bridge.admin.port",
    Port(),
    7677,
    "Port of the admin service and its console; 0 lets the system choose. The port mapper tells it to those who ask. Where it is not set, and the port is taken, the system chooses one.",
)
TLS_ENABLED: Final = Setting(
    "imq.bridge.admin.tls.enabled",
    Boolean(),
    False,
    "Whether the admin service speaks TLS, with the certificate that the STOMP bridge has.",
)
METRICS_DESTINATIONS: Final = Setting(
    "imq.bridge.admin.metrics.destinations",
    Integer(-1),
    1000,
    "Destinations that have metrics of their own at /metrics, those of administrators and settings first, then the oldest; -1 is all of them.",
    unit="destinations",
)
VIEWERS: Final[Setting[tuple[str, ...]]] = Setting(
    "imq.bridge.admin.viewers",
    Words(),
    ("viewer",),
    "Groups whose users may look at everything in the admin service and the console but the bodies of messages, and change nothing.",
)
OPERATORS: Final[Setting[tuple[str, ...]]] = Setting(
    "imq.bridge.admin.operators",
    Words(),
    ("operator",),
    "Groups whose users may also act on destinations, messages, connections, bridges, links and transactions, and read bodies. Those whom the access control file lets connect to the ADMIN service may do everything.",
)
SESSION_LIFE: Final = Setting(
    "imq.bridge.admin.session.life",
    Duration("seconds", 60, 7 * 86_400),
    43_200,
    "How long a log-in to the console lasts at most.",
)
SESSION_IDLE: Final = Setting(
    "imq.bridge.admin.session.idle",
    Duration("seconds", 60, 7 * 86_400),
    1_800,
    "How long a log-in to the console lasts after its user has last done something. What an open page fetches by itself does not count.",
)

PORT_MAPPER_NAME: Final = "bridge_admin"
"""The entry in the port mapper. Its protocol is ``tcp``, or ``tls`` where the service speaks TLS;
its type ADMIN; its property ``hostname`` says where the service listens.
"""

#: Every one of them, in the order of the reference.
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    HOSTNAME,
    PORT,
    TLS_ENABLED,
    METRICS_DESTINATIONS,
    VIEWERS,
    OPERATORS,
    SESSION_LIFE,
    SESSION_IDLE,
)


@dataclass(frozen=True, slots=True)
class AdminOptions:
    """What the admin service is started with.

    :param hostname: where it listens.
    :param port: 0 lets the system choose.
    :param any_port: where the port is taken, let the system choose.
    :param tls: whether it speaks TLS.
    :param user: an administrator besides the users of the group admin; empty for no such user.
    :param password: that user's; where it is empty, no password is right.
    """

    hostname: str = "127.0.0.1"
    port: int = 0
    tls: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    any_port: bool = False

    @classmethod
    def read(cls, settings: Settings) -> AdminOptions:
        """The options as the settings have them.

        :raises SettingsError: it would listen where others can reach it, and without TLS.
        """
        options = cls(
            hostname=settings[HOSTNAME] or HOSTNAME.default,
            port=settings[PORT],
            tls=settings[TLS_ENABLED],
            user=settings[settings_general.BRIDGE_ADMIN_USER],
            password=settings[settings_general.BRIDGE_ADMIN_PASSWORD],
            any_port=not settings.is_given(PORT),
        )
        if not options.tls and not is_loopback(options.hostname):
            expected = (
                f"an address of the loopback, such as 127.0.0.1, where {TLS_ENABLED.name} is false"
            )
            raise SettingsError([settings.problem(HOSTNAME, expected)])
        return options


def is_loopback(host: str) -> bool:
    """Whether this name or address is the machine's own loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in ("localhost", "localhost.localdomain", "ip6-localhost")
