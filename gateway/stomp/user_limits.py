"""What one user may take: connections, messages and octets a second.

Owns the settings, and how a rate is kept over all connections of a user. A user who sends faster is
not refused: its connections are read later, so that the kernel holds its clients back, as with every
other limit. A second's worth may come at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from twisted.logger import Logger

from gateway.instance.settings import Integer, Octets, Setting, Settings, SettingsError

#: As a limit.
NO_LIMIT: Final = -1
#: Seconds' worth that may come at once, after silence.
_BURST_S: Final = 1.0
#: Frames taken at a time, where no rate asks for fewer.
_FRAMES: Final = 64
#: Seconds between two lines of the log about one user.
_TELL_S: Final = 60.0
_log: Final = Logger(namespace="gateway.stomp.connection")

CONNECTIONS_PER_USER: Final = Setting(
    "imq.bridge.stomp.limit.connectionsPerUser",
    Integer(NO_LIMIT),
    NO_LIMIT,
    "Most connections of one user; -1 is no limit",
    unit="connections",
    reloadable=True,
)
MESSAGES_PER_USER: Final = Setting(
    "imq.bridge.stomp.limit.messagesPerSecondPerUser",
    Integer(NO_LIMIT),
    NO_LIMIT,
    "Most messages that the clients of one user send in a second; faster ones are read later; -1 is no limit",
    unit="messages a second",
    reloadable=True,
)
OCTETS_PER_USER: Final = Setting(
    "imq.bridge.stomp.limit.bytesPerSecondPerUser",
    Octets(minimum=16 * 1024),
    NO_LIMIT,
    "Most octets that the clients of one user send in a second; faster ones are read later; -1 is no limit",
    reloadable=True,
)
CONNECTIONS: Final = Setting(
    "imq.bridge.stomp.user.NAME.connections",
    Integer(NO_LIMIT),
    NO_LIMIT,
    "Most connections of this user, instead of imq.bridge.stomp.limit.connectionsPerUser; -1 is no limit",
    unit="connections",
    reloadable=True,
)
MESSAGES: Final = Setting(
    "imq.bridge.stomp.user.NAME.messagesPerSecond",
    Integer(NO_LIMIT),
    NO_LIMIT,
    "Most messages that this user sends in a second, instead of imq.bridge.stomp.limit.messagesPerSecondPerUser",
    unit="messages a second",
    reloadable=True,
)
OCTETS: Final = Setting(
    "imq.bridge.stomp.user.NAME.bytesPerSecond",
    Octets(minimum=16 * 1024),
    NO_LIMIT,
    "Most octets that this user sends in a second, instead of imq.bridge.stomp.limit.bytesPerSecondPerUser",
    reloadable=True,
)
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    CONNECTIONS_PER_USER,
    MESSAGES_PER_USER,
    OCTETS_PER_USER,
    CONNECTIONS,
    MESSAGES,
    OCTETS,
)


@dataclass(frozen=True, slots=True)
class UserLimit:
    """What one user may take; :data:`NO_LIMIT` is no limit.

    :param connections: at once.
    :param messages: of SEND frames, a second.
    :param octets: of all frames, a second.
    """

    connections: int = NO_LIMIT
    messages: int = NO_LIMIT
    octets: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class UserLimits:
    """The limits of all users.

    :param default: of users that have none of their own.
    :param own: of those that have, by name.
    """

    default: UserLimit = UserLimit()
    own: Mapping[str, UserLimit] = field(default_factory=dict)

    def of(self, user: str) -> UserLimit:
        return self.own.get(user, self.default)

    @classmethod
    def read(cls, settings: Settings) -> UserLimits:
        """Return what the settings say.

        :raises SettingsError: nothing could ever be sent.
        """
        default = UserLimit(
            _found(settings, CONNECTIONS_PER_USER, ""),
            _found(settings, MESSAGES_PER_USER, ""),
            _found(settings, OCTETS_PER_USER, ""),
        )
        names = dict.fromkeys(
            name for setting in (CONNECTIONS, MESSAGES, OCTETS) for name in settings.names(setting)
        )

        def own(setting: Setting[int], name: str, otherwise: int) -> int:
            return (
                _found(settings, setting, name) if settings.is_given(setting, name) else otherwise
            )

        return cls(
            default,
            {
                name: UserLimit(
                    own(CONNECTIONS, name, default.connections),
                    own(MESSAGES, name, default.messages),
                    own(OCTETS, name, default.octets),
                )
                for name in names
            },
        )


#: No limits.
UNLIMITED: Final = UserLimits()


def _found(settings: Settings, setting: Setting[int], name: str) -> int:
    found = settings.named(setting, name) if name else settings[setting]
    if found == 0 and setting in (MESSAGES_PER_USER, MESSAGES):
        raise SettingsError([settings.problem(setting, "a whole number from 1, or -1", name)])
    return found


class Allowance:
    """What one user may still send now, by all its connections.

    :param now: seconds of the clock of timers.
    :ivar is_limited: whether there is a rate to keep. :ivar most_frames: how many may be taken at
        once, so that no rate is passed by far.
    """

    def __init__(self, user: str, limit: UserLimit, now: Callable[[], float]) -> None:
        self.user: Final = user
        self._now: Final = now
        #: Until when what came is paid for, at each rate.
        self._messages_until = self._octets_until = -inf
        self._tell_at = -inf
        self.change(limit)

    def change(self, limit: UserLimit) -> None:
        """Have another limit from now on."""
        self.limit = limit
        self.is_limited = limit.messages != NO_LIMIT or limit.octets != NO_LIMIT
        self.most_frames = _FRAMES
        if limit.messages != NO_LIMIT:
            self.most_frames = min(_FRAMES, limit.messages)

    @property
    def rates(self) -> str:
        """What may be sent, in words."""
        limit = self.limit
        spoken = (limit.messages, "messages a second"), (limit.octets, "octets a second")
        return " and ".join(f"{most} {unit}" for most, unit in spoken if most != NO_LIMIT)

    def spend(self, messages: int, octets: int) -> float:
        """Count what came, and return for how many seconds nothing more may.

        The log is told of a user that must wait, once in a while.
        """
        now, limit = self._now(), self.limit
        begin = now - _BURST_S
        if limit.messages != NO_LIMIT:
            self._messages_until = max(self._messages_until, begin) + messages / limit.messages
        if limit.octets != NO_LIMIT:
            self._octets_until = max(self._octets_until, begin) + octets / limit.octets
        wait = self.wait()
        if wait and now >= self._tell_at:
            self._tell_at = now + _TELL_S
            _log.warn(
                "user '{user}' sends more than its {rates}: its clients are read later",
                user=self.user,
                rates=self.rates,
            )
        return wait

    def wait(self) -> float:
        """Return for how many seconds nothing may come; 0 for none."""
        until = now = self._now()
        if self.limit.messages != NO_LIMIT:
            until = max(until, self._messages_until)
        if self.limit.octets != NO_LIMIT:
            until = max(until, self._octets_until)
        return until - now

    @property
    def is_fresh(self) -> bool:
        """Whether it is as if nothing had ever come."""
        return max(self._messages_until, self._octets_until) <= self._now() - _BURST_S


#: Of connections that have no user yet.
ANY: Final = Allowance("", UserLimit(), float)
