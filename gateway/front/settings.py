"""The settings that put other brokers behind the gateway.

Owns their names, defaults and meaning, and which destinations are whose. What a broker's name
stands for, a connection factory, is in the file that :data:`XMLURL` names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from gateway.broker.properties.names import Pattern, is_wild
from gateway.instance.settings import (
    Choice,
    Duration,
    Integer,
    Setting,
    Settings,
    SettingsError,
    Text,
    Words,
)
from gateway.messaging.destination import Destination, Kind

EMBEDDED: Final = "embedded"

PROVIDER: Final = Setting(
    "imq.bridge.stomp.provider",
    Text(),
    EMBEDDED,
    "The broker of STOMP clients: embedded, or the ref-name of a connection factory in the file that imq.bridge.stomp.provider.xmlurl names",
)
XMLURL: Final = Setting(
    "imq.bridge.stomp.provider.xmlurl",
    Text(),
    "",
    'Where the connection factories of other brokers are: a file as that of a JMS bridge, <jmsbridge name="stomp"> without links; a path, which may be relative to the instance\'s etc directory, or a URL',
)
CREDENTIALS: Final = Setting(
    "imq.bridge.stomp.provider.credentials",
    Choice("factory", "client"),
    "factory",
    "As whom the gateway connects to other brokers: as the connection factory says, or with each client's own login and passcode",
)
HOLD: Final = Setting(
    "imq.bridge.stomp.provider.hold",
    Duration("seconds", 0, 3600),
    0,
    "How long clients wait for a broker that went away; 0 tells them by ERROR at once",
)
CONNECTIONS: Final = Setting(
    "imq.bridge.stomp.provider.connections",
    Integer(0, 1000),
    8,
    "Connections to a JMS provider that clients without client-id share; 0 gives each client its own",
)
DESTINATIONS: Final = Setting(
    "imq.bridge.stomp.provider.NAME.destinations",
    Words(),
    (),
    "Destinations that are at the broker whose connection factory has the ref-name NAME, or at the embedded one, such as /queue/erp.>,/topic/prices.*",
)
EXCHANGES: Final = Setting(
    "imq.bridge.stomp.provider.NAME.exchanges",
    Words(),
    (),
    "Which exchanges of the RabbitMQ whose connection factory has the ref-name NAME deliver by the key alone, such as orders=topic,prices=direct; a SUBSCRIBE to another one needs the right to all of its keys",
)
SETTINGS: Final[tuple[Setting[Any], ...]] = (
    PROVIDER,
    XMLURL,
    CREDENTIALS,
    HOLD,
    CONNECTIONS,
    DESTINATIONS,
    EXCHANGES,
)

#: What stands in the place of a NAME in other settings.
_TAKEN: Final = frozenset(
    setting.name.removeprefix(f"{PROVIDER.name}.")
    for setting in (XMLURL, CREDENTIALS, HOLD, CONNECTIONS)
)

#: Types of exchanges that deliver what has a key that fits, and nothing else.
_BY_KEY: Final = ("direct", "topic")

_BEGINNINGS: Final = {"/queue/": Kind.QUEUE, "/topic/": Kind.TOPIC}


class FrontFailed(Exception):
    """The brokers behind the gateway cannot be used as configured.

    ``str`` is one line for each reason.
    """


class Share:
    """A destination by name, or those that a pattern covers.

    :param text: such as ``/queue/erp.>``.
    :raises ValueError: it is not of that form.
    """

    def __init__(self, text: str) -> None:
        beginning = text[:7]
        if beginning not in _BEGINNINGS or len(text) == len(beginning):
            raise ValueError(
                f"/queue/NAME or /topic/NAME for each, where * is one level of the name and > at its end all that follow; '{text[:100]}' is neither"
            )
        name = text[7:]
        self.text: Final = text
        self._kind: Final = _BEGINNINGS[beginning]
        self._pattern: Final = Pattern(name)
        #: How much of it is said in letters, for those that cover the same.
        self.precision: Final = (
            not is_wild(name),
            sum(level not in ("*", ">") for level in name.split(".")),
        )

    def has(self, destination: Destination) -> bool:
        """Whether a destination is one of them.

        A subscription with wildcards is, where all that it covers is.
        """
        return (
            destination.kind is self._kind
            and not destination.temporary
            and self._pattern.matches(destination.name)
        )


@dataclass(frozen=True)
class FrontOptions:
    """Which other brokers are behind the gateway.

    :param main: the ``ref-name`` of the one for all destinations that are not another's; None is
        the embedded broker.
    :param shares: by ``ref-name`` or :data:`EMBEDDED`, the destinations of the others.
    :param by_key: by ``ref-name``, exchanges that deliver by the key alone.
    :param own_logins: each client's login and passcode are the broker's.
    :param hold_s: seconds that clients wait for a broker that went away.
    :param connections: that clients share, to one JMS provider; 0: none is shared.
    """

    main: str | None
    shares: dict[str, tuple[Share, ...]]
    by_key: dict[str, frozenset[str]]
    own_logins: bool
    hold_s: float
    connections: int

    @classmethod
    def read(cls, settings: Settings) -> FrontOptions | None:
        """Return what the settings say; None: there is the embedded broker alone.

        :raises SettingsError: they contradict each other.
        """
        shares: dict[str, tuple[Share, ...]] = {}
        for name in settings.names(DESTINATIONS):
            if name in _TAKEN:
                expected = (
                    f"another name than {', '.join(sorted(_TAKEN))} for the connection factory"
                )
                raise SettingsError([settings.problem(DESTINATIONS, expected, name)])
            try:
                found = tuple(Share(text) for text in settings.named(DESTINATIONS, name))
            except ValueError as error:
                raise SettingsError([settings.problem(DESTINATIONS, str(error), name)]) from None
            if found:
                shares[name] = found
        main = settings[PROVIDER]
        if main == EMBEDDED and not shares:
            return None
        if not settings[XMLURL]:
            expected = "where the connection factories are, as imq.bridge.stomp.provider or imq.bridge.stomp.provider.NAME.destinations name some"
            raise SettingsError([settings.problem(XMLURL, expected)])
        by_key = _read_exchanges(settings, (main, *shares))
        return cls(
            None if main == EMBEDDED else main,
            shares,
            by_key,
            settings[CREDENTIALS] == "client",
            float(settings[HOLD]),
            settings[CONNECTIONS],
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The ``ref-name`` of each connection factory that is used."""
        main = () if self.main is None else (self.main,)
        return tuple(name for name in dict.fromkeys((*main, *self.shares)) if name != EMBEDDED)


def _read_exchanges(settings: Settings, brokers: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Return the exchanges of each broker that deliver by the key alone.

    :raises SettingsError: it is no broker, or no such type.
    """
    found: dict[str, frozenset[str]] = {}
    for name in settings.names(EXCHANGES):
        if name == EMBEDDED or name not in brokers:
            expected = "a broker that imq.bridge.stomp.provider or imq.bridge.stomp.provider.NAME.destinations names"
            raise SettingsError([settings.problem(EXCHANGES, expected, name)])
        typed = [text.rpartition("=") for text in settings.named(EXCHANGES, name)]
        wrong = next((each for each in typed if not each[0] or each[2] not in _BY_KEY), None)
        if wrong is not None:
            expected = f"EXCHANGE={' or EXCHANGE='.join(_BY_KEY)} for each; '{''.join(wrong)[:100]}' is neither"
            raise SettingsError([settings.problem(EXCHANGES, expected, name)])
        found[name] = frozenset(exchange for exchange, _, _ in typed)
    return found
