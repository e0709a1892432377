"""What one user may take: connections, messages and octets a second.

Owns the settings, and how a rate is kept over all connections of a user. A user who sends faster is
not refused: its connections are read later, so that the kernel holds its clients back, as with every
other limit. A user who gets more is given the rest later. A second's worth may come, and go, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from twisted.logger import Logger

from gateway.instance.settings import Integer, Octets, Setting, Settings, SettingsError
from gateway.reactor.rates import TokenBucket

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
DELIVERED_MESSAGES_PER_USER: Final = Setting(
    "imq.bridge.stomp.limit.deliveredMessagesPerSecondPerUser",
    Integer(NO_LIMIT),
    NO_LIMIT,
    "Most messages that the clients of one user get in a second; the rest is delivered later; -1 is no limit",
    unit="messages a second",
    reloadable=True,
)
DELIVERED_OCTETS_PER_USER: Final = Setting(
    "imq.bridge.stomp.limit.deliveredBytesPerSecondPerUser",
    Octets(minimum=16 * 1024),
    NO_LIMIT,
    "Most octets that the clients of one user get in a second; the rest is delivered later; -1 is no limit",
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
DELIVERED_MESSAGES: Final = Setting(
    "imq.bridge.stomp.user.NAME.deliveredMessagesPerSecond",
    Integer(NO_LIMIT),
    NO_LIMIT,
    "Most messages that this user gets in a second, instead of imq.bridge.stomp.limit.deliveredMessagesPerSecondPerUser",
    unit="messages a second",
    reloadable=True,
)
DELIVERED_OCTETS: Final = Setting(
    "imq.bridge.stomp.user.NAME.deliveredBytesPerSecond",
    Octets(minimum=16 * 1024),
    NO_LIMIT,
    "Most octets that this user gets in a second, instead of imq.bridge.stomp.limit.deliveredBytesPerSecondPerUser",
    reloadable=True,
)
#: For each field of :class:`UserLimit`: of all users, and of one.
_FIELDS: Final[Mapping[str, tuple[Setting[int], Setting[int]]]] = {
    "connections": (CONNECTIONS_PER_USER, CONNECTIONS),
    "messages": (MESSAGES_PER_USER, MESSAGES),
    "octets": (OCTETS_PER_USER, OCTETS),
    "delivered_messages": (DELIVERED_MESSAGES_PER_USER, DELIVERED_MESSAGES),
    "delivered_octets": (DELIVERED_OCTETS_PER_USER, DELIVERED_OCTETS),
}
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    *(of_all for of_all, _ in _FIELDS.values()),
    *(of_one for _, of_one in _FIELDS.values()),
)


@dataclass(frozen=True, slots=True)
class UserLimit:
    """What one user may take; :data:`NO_LIMIT` is no limit.

    :param connections: at once.
    :param messages: of SEND frames, a second.
    :param octets: of all frames, a second.
    :param delivered_messages: of MESSAGE frames, a second.
    :param delivered_octets: of all frames to its clients, a second.
    """

    connections: int = NO_LIMIT
    messages: int = NO_LIMIT
    octets: int = NO_LIMIT
    delivered_messages: int = NO_LIMIT
    delivered_octets: int = NO_LIMIT


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
            **{name: _found(settings, of_all, "") for name, (of_all, _) in _FIELDS.items()}
        )
        own: dict[str, UserLimit] = {}
        for name, (_, of_one) in _FIELDS.items():
            for user in settings.names(of_one):
                if settings.is_given(of_one, user):
                    most = {name: _found(settings, of_one, user)}
                    own[user] = replace(own.get(user, default), **most)
        return cls(default, own)


#: No limits.
UNLIMITED: Final = UserLimits()


def _found(settings: Settings, setting: Setting[int], name: str) -> int:
    found = settings.named(setting, name) if name else settings[setting]
    if found == 0 and setting not in (CONNECTIONS_PER_USER, CONNECTIONS):
        raise SettingsError([settings.problem(setting, "a whole number from 1, or -1", name)])
    return found


class RateLimit:
    """What one user may still send now, or get, by all its connections.

    :param now: seconds of the clock of timers.
    :param exceeds: for the log: what a user does that must wait, and what follows.
    :ivar is_limited: whether there is a rate to keep. :ivar most: messages at a time, so that no rate
        is passed by far; 0 for any number. :ivar most_frames: likewise, of frames that are taken.
    """

    def __init__(self, now: Callable[[], float], user: str, exceeds: tuple[str, str]) -> None:
        self._now: Final = now
        self._user: Final = user
        self._exceeds: Final = exceeds
        self._tell_at = -inf
        self._messages: TokenBucket | None = None
        self._octets: TokenBucket | None = None
        self.change(NO_LIMIT, NO_LIMIT)

    def change(self, messages: int, octets: int) -> None:
        """Have other rates from now on."""
        self.messages, self.octets = messages, octets
        self._messages = self._changed(self._messages, messages)
        self._octets = self._changed(self._octets, octets)
        self.is_limited = self._messages is not None or self._octets is not None
        self.most = 0 if messages == NO_LIMIT else messages
        self.most_frames = min(_FRAMES, self.most or _FRAMES)

    def _changed(self, bucket: TokenBucket | None, rate: int) -> TokenBucket | None:
        if rate == NO_LIMIT:
            return None
        if bucket is None:
            return TokenBucket(self._now, rate, _BURST_S, is_full=True)
        bucket.rate = rate
        return bucket

    @property
    def rates(self) -> str:
        """What is allowed, in words."""
        spoken = (self.messages, "messages a second"), (self.octets, "octets a second")
        return " and ".join(f"{most} {unit}" for most, unit in spoken if most != NO_LIMIT)

    def spend(self, messages: int, octets: int) -> float:
        """Count what came or went; return for how many seconds to wait.

        The log is told of a user that must wait, once in a while.
        """
        if self._messages is not None:
            self._messages.take(messages)
        if self._octets is not None:
            self._octets.take(octets)
        wait = self.wait()
        if wait and (now := self._now()) >= self._tell_at:
            self._tell_at = now + _TELL_S
            does, follows = self._exceeds
            _log.warn(
                "user '{user}' {does} more than its {rates}: {follows}",
                user=self._user,
                does=does,
                rates=self.rates,
                follows=follows,
            )
        return wait

    def wait(self) -> float:
        """Return for how many seconds nothing may come or go; 0 for none."""
        return max(
            0.0 if self._messages is None else self._messages.lacks_s(),
            0.0 if self._octets is None else self._octets.lacks_s(),
        )

    @property
    def is_fresh(self) -> bool:
        """Whether it is as if nothing had ever come or gone."""
        buckets = (self._messages, self._octets)
        return all(bucket.is_full for bucket in buckets if bucket is not None)


class Allowance:
    """What one user may send and get now.

    :param now: seconds of the clock of timers.
    """

    def __init__(self, user: str, limit: UserLimit, now: Callable[[], float]) -> None:
        self.user: Final = user
        self.sent: Final = RateLimit(now, user, ("sends", "its clients are read later"))
        self.delivered: Final = RateLimit(now, user, ("gets", "the rest is delivered later"))
        self.change(limit)

    def change(self, limit: UserLimit) -> None:
        """Have another limit from now on."""
        self.sent.change(limit.messages, limit.octets)
        self.delivered.change(limit.delivered_messages, limit.delivered_octets)

    @property
    def is_fresh(self) -> bool:
        """Whether it is as if the user had never sent or got anything."""
        return self.sent.is_fresh and self.delivered.is_fresh


#: Of connections that have no user yet.
ANY: Final = Allowance("", UserLimit(), float)
